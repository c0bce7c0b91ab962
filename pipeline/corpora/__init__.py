"""Sources of text, each read into a `Corpus`, and their archives, downloads, lengths and splits."""
