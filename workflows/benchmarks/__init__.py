"""Measured speed of preparation, training and decoding beside other libraries."""
