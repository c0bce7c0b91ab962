"""The figures of the paper's appendix, drawn from a trained model."""
