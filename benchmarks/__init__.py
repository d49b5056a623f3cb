"""Commands that measure speed, accuracy and robustness. Run one with `python -m benchmarks.NAME --help`."""
