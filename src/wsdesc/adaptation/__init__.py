"""Adapt the descriptor to one's own scans: reconstruct, teach, distil, check."""
