"""Index of descriptors: approximate nearest neighbours by the library voyager (HNSW graphs)."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from wsdesc.core.errors import FileFormatError, MissingExtraError

_LINKS = 12  # neighbours of each descriptor in the graph
_BUILD_DEPTH, _SEARCH_DEPTH = 60, 64  # candidates of a search: more are more exact and slower
_BATCH = 20_000  # descriptors that are added between two reports of progress


class DescriptorIndex:
    """Nearest map descriptors by Euclidean distance, nearly always the exact ones.

    The graph is built on one thread: the same descriptors then give the same file.
    """

    def __init__(self, graph: Any) -> None:
        self._graph = graph

    def __len__(self) -> int:
        return len(self._graph)

    @classmethod
    def of(
        cls, descriptors: NDArray[np.int8], advance: Callable[[int], None] = lambda items: None
    ) -> DescriptorIndex:
        """Build the index of descriptors (K, C), unit vectors times 127."""
        voyager = load_library()
        graph = voyager.Index(
            voyager.Space.Euclidean,
            descriptors.shape[1],
            M=_LINKS,
            ef_construction=_BUILD_DEPTH,
            random_seed=1,
            max_elements=max(1, len(descriptors)),
            storage_data_type=voyager.StorageDataType.Float8,
        )
        for start in range(0, len(descriptors), _BATCH):
            batch = descriptors[start : start + _BATCH].astype(np.float32) / 127
            graph.add_items(batch, np.arange(start, start + len(batch)), num_threads=1)
            advance(len(batch))
        return cls(graph)

    def save(self, path: Path) -> None:
        """Write the index into a file."""
        self._graph.save(str(path))

    @classmethod
    def load(cls, path: Path) -> DescriptorIndex:
        """Read a file that `save` wrote. Its content must have been checked: the library trusts it.

        Raises:
            FileFormatError: The library cannot read the file.
        """
        try:
            return cls(load_library().Index.load(str(path)))
        except (RuntimeError, ValueError, MemoryError) as error:
            raise FileFormatError(
                f"{path}: the index of the map cannot be read: build the map again"
            ) from error

    def search(self, descriptors: NDArray[np.float32], count: int) -> NDArray[np.int64]:
        """Find the `count` nearest map descriptors of each descriptor (K, C): indices (K, count)."""
        count = min(count, len(self))
        nearest, _ = self._graph.query(descriptors, count, query_ef=max(_SEARCH_DEPTH, 2 * count))
        return np.asarray(nearest, np.int64).reshape(len(descriptors), count)


def load_library() -> Any:
    """Import voyager, or say how to install it."""
    try:
        import voyager
    except ImportError as error:
        raise MissingExtraError("A map", "map") from error
    return voyager
