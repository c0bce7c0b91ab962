"""The figures of the paper's appendix from a trained model: drawings and the page."""
