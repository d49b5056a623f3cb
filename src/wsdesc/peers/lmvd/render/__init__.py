"""Depth images of point clouds: each point is a disc of constant depth, and the nearest disc wins.

The position on the screen is 0 … 1 along both axes. As in the published renderer, pixel (i, j) lies at
(i/63, j/63), but windows of pixels are counted in 1/64. A disc is tested against the pixels of its window.
"""

from __future__ import annotations

from torch import Tensor

from wsdesc.peers.lmvd.render import cpu, reference

__all__ = ["render_depth"]


def render_depth(points: Tensor, clip: Tensor, radius: float) -> Tensor:
    """Render the cloud with several cameras.

    Args:
        points: (N, 3) float32.
        clip: Clip matrices (V, 4, 4): projection · view.
        radius: Radius of the discs, in the unit of the points.

    Returns:
        Depths (V, 64, 64); 0 where no point is seen. Row 0 is the upper edge.
    """
    render = cpu.render_depth if points.device.type == "cpu" else reference.render_depth
    return render(points, clip, radius)
