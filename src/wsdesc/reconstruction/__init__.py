"""Reconstruction: many scans to poses in one frame."""
