"""The reports: one self-contained HTML file a table, its plots, and the report of prepared text."""
