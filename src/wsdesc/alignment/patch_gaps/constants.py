"""Constant of both backends."""

SAME_DIRECTION = 0.95  # cosine between the normals of a point and its partner: nearer edges tell nothing
