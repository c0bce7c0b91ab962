"""The stages: each one function from typed artifacts and settings to one typed artifact (paper §5)."""
