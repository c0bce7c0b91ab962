"""Evaluation of a trained model (paper §6): averaging, decoding, scoring, perplexity and cost."""
