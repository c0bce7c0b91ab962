"""Writes the reports: one self-contained HTML file for each table, its plots, and the report of prepared text."""
