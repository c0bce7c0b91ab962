"""Attention weights of trained models: recorded in single translations, and chosen for the appendix's figures."""
