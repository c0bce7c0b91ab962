"""What the layer types of Table 1 cost (paper §4): counted, and measured on this machine."""
