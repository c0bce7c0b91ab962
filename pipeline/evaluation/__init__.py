"""What is measured of a trained model (paper §6): averaging, decoding, scores, perplexity, cost."""
