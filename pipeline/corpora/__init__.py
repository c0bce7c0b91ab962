"""Where text comes from: each module gives the same `Corpus`."""
