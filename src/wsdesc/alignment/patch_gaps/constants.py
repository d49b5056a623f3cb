"""Constant of both backends."""

# Least cosine between the normals of a point and its partner: at edges, gaps say nothing.
SAME_DIRECTION = 0.95
