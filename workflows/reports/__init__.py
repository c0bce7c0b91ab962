"""Writes one self-contained HTML report per table, its plots, and the report on prepared text."""
