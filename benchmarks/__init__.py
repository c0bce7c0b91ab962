"""Measurements beside other libraries, and of a GPU. They are run from a clone; no other package imports them."""
