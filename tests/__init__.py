"""The tests mirror the packages; what they share lies in `tests.support`."""
