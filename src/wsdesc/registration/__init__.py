"""Two scans to a pose and its confidence."""
