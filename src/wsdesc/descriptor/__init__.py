"""Descriptors of scans: local reference frames, voxelization, support, network and weights."""
