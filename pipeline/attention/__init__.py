"""Attention weights of trained models: of one translation, of all heads on a sample, and against what words mean."""
