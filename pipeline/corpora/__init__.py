"""Sources of text: each module makes the same kind of `Corpus`."""
