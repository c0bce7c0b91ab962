"""Attention weights of trained models: of single translations, of all heads on a sample, and against word relations."""
