"""Shared by all packages: errors, options, files, progress, kernels, devices, random numbers, geometry."""
