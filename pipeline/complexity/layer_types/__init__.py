"""The layer types of Table 1 (paper §4), as functions from a sequence to one of the same shape."""
