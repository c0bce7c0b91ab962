"""Cost of Table 1's layer types (paper §4): counted, and measured on this machine."""
