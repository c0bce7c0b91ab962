"""Constituency parsing (§6.3)."""
