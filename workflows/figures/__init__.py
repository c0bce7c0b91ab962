"""The figures of the paper's appendix from a trained model: drawings, the page, and the server behind the page."""
