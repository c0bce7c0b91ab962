"""The tests mirror the packages; shared code is in `tests.support`."""
