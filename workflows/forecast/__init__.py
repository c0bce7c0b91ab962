"""Forecasts of a table's cost before it runs: disk, FLOP and hours."""
