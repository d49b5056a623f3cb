"""Other descriptors and registration methods behind one interface, for comparison.

    from wsdesc import peers

    for name, missing in peers.available("descriptor").items():
        if missing is None:
            features = peers.descriptor(name)(points, keypoints, unit)

`missing` is the reason why a peer cannot run, with the install command. A peer's package is imported when the
peer is created. Learned peers read their weights from a folder:
`peers.descriptor("spinnet", weights="peers/")`.
"""

from __future__ import annotations

import math
from importlib import import_module
from pathlib import Path
from typing import Any, Literal, NamedTuple, cast

from wsdesc.core.errors import InputError
from wsdesc.peers.base import DescriptorPeer, PeerUnavailableError, PosePeer
from wsdesc.peers.weights import find_files, fingerprint

__all__ = [
    "DescriptorPeer",
    "PeerUnavailableError",
    "PosePeer",
    "WeightsOrigin",
    "available",
    "descriptor",
    "names",
    "origin",
    "pose",
]

Kind = Literal["descriptor", "pose"]


class WeightsOrigin(NamedTuple):
    """Origin of the weights of a learned peer."""

    source: str  # one line: whose weights, from where, under which licence
    fingerprint: str  # names and content hashes of the files


class _Entry(NamedTuple):
    kind: Kind
    module: str  # module of this package
    factory: str  # class in the module; raises PeerUnavailableError if its package is missing
    arguments: dict[str, Any] = {}  # noqa: RUF012 (never changed)


_PEERS: dict[str, _Entry] = {
    "shot": _Entry("descriptor", "shot", "Shot"),
    "fpfh": _Entry("descriptor", "fpfh", "Fpfh", {"oriented": True}),
    "fpfh-unoriented": _Entry("descriptor", "fpfh", "Fpfh", {"oriented": False}),
    "ppf-foldnet": _Entry("descriptor", "ppf_foldnet", "PpfFoldNet"),
    "spinnet": _Entry("descriptor", "spinnet", "SpinNet"),
    "spinnet-eth": _Entry("descriptor", "spinnet", "SpinNetEth"),
    "spinnet-kitti": _Entry("descriptor", "spinnet", "SpinNetKitti"),
    "lmvd": _Entry("descriptor", "lmvd", "Lmvd"),
    "lmvd-eth": _Entry("descriptor", "lmvd", "LmvdEth"),
    "capsulenet": _Entry("descriptor", "capsulenet", "CapsuleNet"),
    "s2cnn-512": _Entry("descriptor", "s2cnn", "S2Cnn"),
    "s2cnn-32": _Entry("descriptor", "s2cnn", "S2Cnn32"),
    "3dmatch": _Entry("descriptor", "threedmatch", "ThreeDMatch"),
    "fpfh+ransac": _Entry("pose", "open3d_poses", "FpfhRansac", {"oriented": True}),
    "fpfh-unoriented+ransac": _Entry("pose", "open3d_poses", "FpfhRansac", {"oriented": False}),
    "fgr": _Entry("pose", "open3d_poses", "Fgr", {"oriented": True}),
    "fgr-unoriented": _Entry("pose", "open3d_poses", "Fgr", {"oriented": False}),
    "icp": _Entry("pose", "open3d_poses", "Icp"),
    "kiss-matcher": _Entry("pose", "kiss", "KissMatcher"),
    "go-icp": _Entry("pose", "goicp", "GoIcp"),
    "go-icp-trimmed": _Entry("pose", "goicp", "GoIcp", {"half_range": math.pi / 4, "trim": 0.25}),
    "pointnetlk": _Entry("pose", "pointnetlk", "PointNetLK"),
    "dcp": _Entry("pose", "dcp", "DcpPeer"),
    "rpmnet": _Entry("pose", "rpmnet", "RpmNetPeer"),
    "deepgmr": _Entry("pose", "deepgmr", "DeepGmrPeer"),
    "arl": _Entry("pose", "arl", "ArlPeer"),
    "prnet": _Entry("pose", "prnet", "PrNetPeer"),
    "omnet": _Entry("pose", "omnet", "OmNetPeer"),
}


def names(kind: Kind | None = None) -> list[str]:
    """List the names of all peers, or of those of one kind, available or not."""
    return [name for name, entry in _PEERS.items() if kind in (None, entry.kind)]


def available(kind: Kind | None = None, *, weights: str | Path | None = None) -> dict[str, str | None]:
    """Check all peers, or those of one kind: name → None if it can run, else what is missing.

    Args:
        kind: Kind of the peers.
        weights: Folder of weights for learned peers.
    """
    result: dict[str, str | None] = {}
    for name in names(kind):
        try:
            _create(name, _PEERS[name].kind, weights)
        except PeerUnavailableError as error:
            result[name] = str(error)
        else:
            result[name] = None
    return result


def descriptor(name: str, *, weights: str | Path | None = None) -> DescriptorPeer:
    """Create the descriptor peer `name`.

    Args:
        name: Name of the peer.
        weights: Folder that holds the weight files of a learned peer; other peers ignore it.

    Raises:
        InputError: No descriptor peer has this name.
        PeerUnavailableError: Its package is not installed, or its weights are missing or wrong.
    """
    return cast(DescriptorPeer, _create(name, "descriptor", weights))


def pose(name: str, *, weights: str | Path | None = None) -> PosePeer:
    """Create the pose peer `name`.

    Args:
        name: Name of the peer.
        weights: Folder that holds the weight files of a learned peer; other peers ignore it.

    Raises:
        InputError: No pose peer has this name.
        PeerUnavailableError: Its package is not installed, or its weights are missing or wrong.
    """
    return cast(PosePeer, _create(name, "pose", weights))


def origin(name: str, *, weights: str | Path | None = None) -> WeightsOrigin | None:
    """Return the origin of the weights of a peer; None for peers without weights.

    Raises:
        PeerUnavailableError: A weight file is missing.
    """
    factory = _factory(_PEERS[name])
    if not hasattr(factory, "FILES"):
        return None
    return WeightsOrigin(factory.SOURCE, fingerprint(weights, factory))


def _create(name: str, kind: Kind, weights: str | Path | None) -> Any:
    entry = _PEERS.get(name)
    if entry is None or entry.kind != kind:
        raise InputError(f"unknown {kind} peer {name!r}: choose {', '.join(names(kind))}")
    factory = _factory(entry)
    if not hasattr(factory, "FILES"):
        return factory(**entry.arguments)
    find_files(weights, factory)
    return factory(Path(cast(str, weights)), **entry.arguments)


def _factory(entry: _Entry) -> Any:
    return getattr(import_module(f"{__name__}.{entry.module}"), entry.factory)
