"""Computes the paper's tables, with printed and measured values side by side, and writes their pages."""
