"""Judges the claims of the paper's abstract, §3.2.1, §5.4 and §6.2 by the seeds of Tables 2 and 3."""
