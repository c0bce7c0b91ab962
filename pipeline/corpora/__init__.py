"""Sources of text; each module produces a `Corpus`."""
