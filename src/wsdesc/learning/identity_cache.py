"""What was made of clouds that come again and again."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from threading import Lock
from typing import Any, Generic, TypeVar

import torch
from torch import Tensor

from wsdesc.cloud.neighbours import NeighbourGrid

Made = TypeVar("Made")


class IdentityCache(Generic[Made]):
    """Keeps what `make` makes, of the `most` arguments asked for last. Arguments are known by being the same
    objects, which must not change meanwhile. Several threads may ask at once."""

    def __init__(self, make: Callable[..., Made], most: int) -> None:
        self.make, self.most = make, most
        self._kept: OrderedDict[tuple[int, ...], tuple[Any, Made]] = OrderedDict()
        self._lock = Lock()

    def of(self, *objects: Any) -> Made:
        """`make(*objects)`, now or earlier."""
        key = tuple(map(id, objects))
        with self._lock:
            if key in self._kept:
                self._kept.move_to_end(key)
                return self._kept[key][1]
        made = self.make(*objects)
        with self._lock:
            self._kept[key] = (objects, made)  # holds the objects: ids stay theirs
            while len(self._kept) > self.most:
                self._kept.popitem(last=False)
        return made


def cached_grids(device: torch.device, most: int = 1024) -> IdentityCache[NeighbourGrid]:
    """Grids on a device of clouds (N, 3), about half a megabyte each."""

    def make(cloud: Tensor) -> NeighbourGrid:
        grid = NeighbourGrid.of(cloud.to(device, non_blocking=True))
        if device.type == "cuda":  # another stream may be the next to read it
            torch.cuda.current_stream(device).synchronize()
        return grid

    return IdentityCache(make, most)
