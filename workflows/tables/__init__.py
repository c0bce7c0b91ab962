"""Computes the paper's tables, with printed and measured figures side by side, and the notes beneath them."""
