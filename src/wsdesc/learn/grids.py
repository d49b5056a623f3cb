"""Neighbour grids of clouds that come again and again."""

from __future__ import annotations

from collections import OrderedDict
from threading import Lock

import torch
from torch import Tensor

from wsdesc.cloud.neighbours import NeighbourGrid

_MOST = 1024  # clouds; about half a megabyte each


class GridsAtHand:
    """Grids on a device of the clouds asked for last. A cloud is known by being the same object."""

    def __init__(self, device: torch.device) -> None:
        self.device = device
        self._kept: OrderedDict[int, tuple[Tensor, NeighbourGrid]] = OrderedDict()  # holds clouds: ids stay
        self._lock = Lock()

    def of(self, cloud: Tensor) -> NeighbourGrid:
        """The grid of `cloud` (N, 3), which must not change meanwhile. Several threads may ask at once."""
        with self._lock:
            if id(cloud) in self._kept:
                self._kept.move_to_end(id(cloud))
                return self._kept[id(cloud)][1]
        grid = NeighbourGrid.of(cloud.to(self.device, non_blocking=True))
        if self.device.type == "cuda":  # another stream may be the next to read it
            torch.cuda.current_stream(self.device).synchronize()
        with self._lock:
            self._kept[id(cloud)] = (cloud, grid)
            while len(self._kept) > _MOST:
                self._kept.popitem(last=False)
        return grid
