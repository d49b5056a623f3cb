"""Scan to descriptors: local reference frames, voxelization, the network, and weights."""
