"""Constituency parsing (§6.3): treebanks, trees as symbol sequences, and EVALB's bracketing scores."""
