"""The layer types of Table 1 (paper §4), each a function from a sequence to one of the same shape."""
