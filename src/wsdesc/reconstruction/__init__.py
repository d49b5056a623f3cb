"""Many scans to poses in one frame."""
