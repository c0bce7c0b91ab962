"""The symbols of linearised trees, without nltk, which those who only translate do without (§6.3)."""

WORD_SYMBOL = "XX"
"""Stands for a word and its part-of-speech tag."""
