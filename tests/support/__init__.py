"""Shared by the tests: tiny models, texts and stages, servers, and processes to interrupt."""
