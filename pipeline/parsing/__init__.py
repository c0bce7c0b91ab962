"""Constituency parsing (§6.3): treebanks, trees as symbol sequences, and bracketing scores as EVALB computes them."""
