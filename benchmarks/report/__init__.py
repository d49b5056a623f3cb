"""Write a page of benchmark results beside the published figures: `python -m benchmarks.report`."""
