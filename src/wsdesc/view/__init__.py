"""Pictures, notebook display, and the interactive page of scans and poses."""
