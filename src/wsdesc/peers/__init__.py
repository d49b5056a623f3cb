"""Other descriptors and registration methods behind one interface, for comparison.

    from wsdesc import peers

    for name, missing in peers.available("descriptor").items():
        if missing is None:
            features = peers.descriptor(name)(points, keypoints, unit)

`missing` says why a peer cannot run, with the install command. A peer's package is imported when the peer is
created.
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
    factory: str  # class in the module; raises PeerUnavailableError if its package is missing
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
    """List the names of all peers, or of those of one kind, available or not."""
    return [name for name, entry in _PEERS.items() if kind in (None, entry.kind)]


def available(kind: Kind | None = None) -> dict[str, str | None]:
    """Check all peers, or those of one kind: name → None if it can run, else what to install."""
    result: dict[str, str | None] = {}
    for name in names(kind):
        try:
            _create(name, _PEERS[name].kind)
        except PeerUnavailableError as error:
            result[name] = str(error)
        else:
            result[name] = None
    return result


def descriptor(name: str) -> DescriptorPeer:
    """Create the descriptor peer `name`.

    Raises:
        InputError: No descriptor peer has this name.
        PeerUnavailableError: Its package is not installed.
    """
    return cast(DescriptorPeer, _create(name, "descriptor"))


def pose(name: str) -> PosePeer:
    """Create the pose peer `name`.

    Raises:
        InputError: No pose peer has this name.
        PeerUnavailableError: Its package is not installed.
    """
    return cast(PosePeer, _create(name, "pose"))


def _create(name: str, kind: Kind) -> Any:
    entry = _PEERS.get(name)
    if entry is None or entry.kind != kind:
        raise InputError(f"unknown {kind} peer {name!r}: choose {', '.join(names(kind))}")
    module = import_module(f"{__name__}.{entry.module}")
    return getattr(module, entry.factory)(**entry.arguments)
