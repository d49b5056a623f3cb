"""Cheapest cuts of a graph of scans: which part is least bound to the others?"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import coo_array, csr_array
from scipy.sparse.csgraph import breadth_first_order, connected_components, maximum_flow

Part = NDArray[np.bool_]  # (n,) of the scans

FLOW_UNITS = 1000  # integer units of capacity per log odds
MAX_SCANS = 300  # of a group, or parts that no cheap cut separates, whose cuts are searched


def cheapest_part(losses: csr_array, limit: float) -> tuple[Part, float]:
    """Find the part of n scans that is separated with the least loss, and that loss.

    Args:
        losses: (n, n) what is lost if the scan of the row is in the part, and that of the column is not.
        limit: Parts above this loss may not be found.

    Returns:
        The part, and its loss; infinite if none was found.
    """
    best, least = np.zeros(losses.shape[0], dtype=bool), np.inf
    for part in _promising_parts(losses, limit):
        improved, loss = _improved(losses, part)
        if loss < least:
            best, least = improved, loss
    return best, least


def _promising_parts(losses: csr_array, limit: float) -> list[Part]:
    """Return parts (n,) to start from: single scans, all but one scan, and those of cuts below the limit."""
    label = _contracted(losses, limit)
    nodes, count = int(label.max()) + 1, len(label)
    if nodes == 1 and count > MAX_SCANS:
        return []
    singles = np.arange(count) if count <= MAX_SCANS else label
    single = singles == np.unique(singles)[:, None]
    parts = [*single, *~single]
    if nodes > MAX_SCANS:
        return parts
    entries = losses.tocoo()
    capacity = (FLOW_UNITS * np.maximum(entries.data, 0)).astype(np.int32)
    graph = coo_array((capacity, (label[entries.row], label[entries.col])), shape=(nodes, nodes)).tocsr()
    graph.setdiag(0)
    graph.eliminate_zeros()
    for node in range(1, nodes):
        for source, sink in ((0, node), (node, 0)):
            flow = maximum_flow(graph, source, sink)
            if flow.flow_value < FLOW_UNITS * limit:
                parts.append(source_side(graph, flow.flow, source)[label])
    return parts


def source_side(capacity: csr_array, flow: csr_array, source: int) -> Part:
    """Return the nodes (n,) that the minimum cut leaves connected with the source.

    Args:
        capacity: (n, n) capacities.
        flow: (n, n) maximum flow from the source.
        source: Node.
    """
    rest = capacity - flow
    rest.data = np.maximum(rest.data, 0)
    rest.eliminate_zeros()
    side = np.zeros(capacity.shape[0], dtype=bool)
    side[breadth_first_order(rest, source, return_predecessors=False)] = True
    return side


def _contracted(losses: csr_array, limit: float) -> NDArray[np.intp]:
    """Number the scans (n,) so that no cut below the limit separates scans with the same number."""
    label = np.arange(losses.shape[0])
    while True:
        count = int(label.max()) + 1
        entries = losses.tocoo()
        shape = (count, count)
        capacity = np.maximum(entries.data, 0)
        joined = coo_array((capacity, (label[entries.row], label[entries.col])), shape=shape).tocsr()
        both = joined.minimum(joined.T)
        both.setdiag(0)
        both.data[both.data < limit] = 0
        both.eliminate_zeros()
        number, merged = connected_components(both, directed=False)
        if number == count:
            return label
        label = merged[label]


def _improved(losses: csr_array, part: Part) -> tuple[Part, float]:
    """Add scans to a part, or remove them, while that lowers its loss; return the part and its loss."""
    part = part.copy()
    while True:
        joining = losses @ ~part - losses.T @ part  # change of the loss if a scan joins the part
        change = np.where(part, -joining, joining)
        if part.sum() == 1:
            change[part] = np.inf
        if part.sum() == len(part) - 1:
            change[~part] = np.inf
        best = int(change.argmin())
        if change[best] >= -1e-9:
            return part, float(part @ (losses @ ~part))
        part[best] = ~part[best]
