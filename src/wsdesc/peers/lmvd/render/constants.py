"""Constants of the renderer."""

import math

PIXELS = 64  # side of an image
NEAR, FAR = 0.1, 6.0  # depths that are drawn
TANGENT = math.tan(math.pi / 6)  # tangent of half the field of view, 60°
