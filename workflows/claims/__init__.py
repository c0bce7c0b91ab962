"""Judges the paper's claims (§3 to §6 and its figures) by counts, timings and training runs."""
