"""Coverage-guided fuzzing of all readers of files: `python -m benchmarks.fuzz`."""
