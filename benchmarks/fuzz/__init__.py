"""Coverage-guided fuzzing of everything that WSDesc reads: `python -m benchmarks.fuzz`."""
