"""Generated data with the measured lengths of real corpora, for benchmarks and forecasts."""
