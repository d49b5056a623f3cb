"""What people would use instead of WSDesc, behind one interface, by name.

    from wsdesc import peers

    for name, missing in peers.available("descriptor").items():
        if missing is None:
            features = peers.descriptor(name)(points, keypoints, unit)

`missing` is the line that says what to type. Nothing heavy is imported before a peer is asked for.
"""

from __future__ import annotations

from importlib import import_module
from typing import Any, Literal, NamedTuple, cast

from wsdesc.core.errors import InputError
from wsdesc.peers.base import DescriptorPeer, PeerUnavailableError, PosePeer

__all__ = ["DescriptorPeer", "PeerUnavailableError", "PosePeer", "available", "descriptor", "names", "pose"]

Kind = Literal["descriptor", "pose"]


class _Entry(NamedTuple):
    kind: Kind
    module: str  # of this package
    maker: str  # in it: called with the arguments, returns the peer or raises PeerUnavailableError
    arguments: dict[str, Any]


_PEERS: dict[str, _Entry] = {
    "shot": _Entry("descriptor", "shot", "Shot", {}),
    "fpfh": _Entry("descriptor", "fpfh", "Fpfh", {"oriented": True}),
    "fpfh-unoriented": _Entry("descriptor", "fpfh", "Fpfh", {"oriented": False}),
    "fpfh+ransac": _Entry("pose", "open3d_poses", "FpfhRansac", {"oriented": True}),
    "fpfh-unoriented+ransac": _Entry("pose", "open3d_poses", "FpfhRansac", {"oriented": False}),
    "fgr": _Entry("pose", "open3d_poses", "Fgr", {"oriented": True}),
    "fgr-unoriented": _Entry("pose", "open3d_poses", "Fgr", {"oriented": False}),
    "icp": _Entry("pose", "open3d_poses", "Icp", {}),
    "kiss-matcher": _Entry("pose", "kiss", "KissMatcher", {}),
}


def names(kind: Kind | None = None) -> list[str]:
    """All peers, or those of a kind, whether they can run here or not."""
    return [name for name, entry in _PEERS.items() if kind in (None, entry.kind)]


def available(kind: Kind | None = None) -> dict[str, str | None]:
    """Each peer's name with None if it can run here, else with the line that says what to type."""
    result: dict[str, str | None] = {}
    for name in names(kind):
        try:
            _make(name, _PEERS[name].kind)
        except PeerUnavailableError as error:
            result[name] = str(error)
        else:
            result[name] = None
    return result


def descriptor(name: str) -> DescriptorPeer:
    """The descriptor of that name."""
    return cast(DescriptorPeer, _make(name, "descriptor"))


def pose(name: str) -> PosePeer:
    """The pose estimator of that name."""
    return cast(PosePeer, _make(name, "pose"))


def _make(name: str, kind: Kind) -> Any:
    entry = _PEERS.get(name)
    if entry is None or entry.kind != kind:
        raise InputError(f"no {kind} peer {name!r}: choose {', '.join(names(kind))}")
    module = import_module(f"{__name__}.{entry.module}")
    return getattr(module, entry.maker)(**entry.arguments)
