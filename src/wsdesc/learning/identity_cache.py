"""Cache values that are computed from the same objects many times."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from threading import Lock
from typing import Any, Generic, TypeVar

import torch
from torch import Tensor

from wsdesc.cloud.neighbours import NeighbourGrid

Value = TypeVar("Value")

_GRIDS = 1024  # largest number of cached neighbour grids, about half a megabyte each


class IdentityCache(Generic[Value]):
    """Thread-safe LRU cache keyed by object identity. The objects must not be modified.

    Args:
        compute: Function of the objects.
        capacity: Largest number of values.
    """

    def __init__(self, compute: Callable[..., Value], capacity: int) -> None:
        self.compute, self.capacity = compute, capacity
        self._values: OrderedDict[tuple[int, ...], tuple[Any, Value]] = OrderedDict()
        self._lock = Lock()

    def get(self, *objects: Any) -> Value:
        """Return `compute(*objects)`, cached."""
        key = tuple(map(id, objects))
        with self._lock:
            if key in self._values:
                self._values.move_to_end(key)
                return self._values[key][1]
        value = self.compute(*objects)
        with self._lock:
            self._values[key] = (objects, value)  # keeps the objects alive, so that no id is reused
            while len(self._values) > self.capacity:
                self._values.popitem(last=False)
        return value


def cached_grids(device: torch.device) -> IdentityCache[NeighbourGrid]:
    """Cache the neighbour grids of clouds (N, 3) on a device."""

    def compute(cloud: Tensor) -> NeighbourGrid:
        grid = NeighbourGrid.of(cloud.to(device, non_blocking=True))
        if device.type == "cuda":  # another stream may read the grid next
            torch.cuda.current_stream(device).synchronize()
        return grid

    return IdentityCache(compute, _GRIDS)
