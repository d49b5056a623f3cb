"""Registration: two scans to a pose and its confidence."""
