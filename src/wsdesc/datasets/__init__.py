"""Data sets: benchmarks, folders of scans, and synthetic scans."""
