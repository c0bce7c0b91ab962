"""The stages: each a function from typed artifacts and settings to one typed artifact (paper §5)."""
