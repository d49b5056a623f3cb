"""What is judged: anything that describes keypoints, or that finds a pose by itself.

Models, peers and the doubles of tests all fit the two protocols below; a benchmark knows nothing else of
them.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from wsdesc.core.errors import InputError

UNTRAINED = {"untrained": 1.0, "untrained-fast": 0.25}  # the widths of networks nobody has taught


class Describer(Protocol):
    """Describes keypoints (K, 3) of a cloud (N, 3), whose unit is the length of a metre in it: (K, C)."""

    def __call__(self, points: Tensor, keypoints: Tensor, unit: float, /) -> Tensor: ...


class PoseEstimator(Protocol):
    """Finds T_target_source (4, 4) of two clouds (N, 3) and (M, 3), not thinned, or None; unit as above."""

    def __call__(self, source: Tensor, target: Tensor, unit: float, /) -> Tensor | None: ...


@dataclass(frozen=True)
class Method:
    """A row of a table: a name, and one of the two things it can do."""

    name: str
    describer: Describer | None = None
    estimator: PoseEstimator | None = None
    fingerprint: str = ""  # changes with the weights: results of others must not be continued
    device: str = "cpu"  # where points go before they are described
    recipe: dict[str, str] | None = None  # how another process gets it: what `from_recipe` takes

    def __post_init__(self) -> None:
        if (self.describer is None) == (self.estimator is None):
            raise InputError(f"{self.name}: a method either describes keypoints or estimates poses")

    @property
    def file_stem(self) -> str:
        """The name without signs that a file's name cannot have."""
        return re.sub(r"[^\w.+-]+", "_", self.name)

    @torch.inference_mode()
    def describe(self, points: Tensor, keypoints: Tensor, unit: float, where: str) -> Tensor:
        """Descriptors (K, C) on the method's device. They may hold NaN; a wrong shape is an InputError that
        names the method and `where` it happened."""
        assert self.describer is not None
        features = self.describer(points.to(self.device), keypoints.to(self.device), unit)
        features = torch.as_tensor(features).detach()
        if features.ndim != 2 or len(features) != len(keypoints):
            raise InputError(
                f"{self.name}, {where}: gave {tuple(features.shape)} for {len(keypoints)} keypoints, "
                "not (K, C)"
            )
        return features


def load_methods(
    models: Sequence[str],
    peers: Sequence[str],
    device: str = "cpu",
    pipelines: Sequence[str] = (),
    skip: Callable[[str], None] | None = None,
) -> list[Method]:
    """Methods by the names a command is given.

    A model is a file of weights, the name of one in the package, or one of `UNTRAINED`; `NAME=MODEL` calls it
    NAME in the tables. Of those among `pipelines` all that `wsdesc.register` does is judged, not the
    descriptors alone. Peers are asked for by the names of their registry. `skip` hears, in a line, of each
    that cannot run here and what to type; without it that is an error, as when nothing else is left.
    """
    from wsdesc.peers import PeerUnavailableError

    methods = [from_recipe({"model": model, "device": device}) for model in models]
    methods += [from_recipe({"pipeline": model, "device": device}) for model in pipelines]
    missing = []
    for name in peers:
        try:
            methods.append(from_recipe({"peer": name}))
        except PeerUnavailableError as error:
            missing.append(error)
            if skip is None:
                raise
            skip(f"{name} is skipped: {error}")
    if not methods:
        raise missing[0] if missing else InputError("nothing to judge: name a --model or a --peer")
    stems = [method.file_stem for method in methods]
    for stem in stems:
        if stems.count(stem) > 1:
            raise InputError(f"two methods are called {stem}: tell them apart by --model NAME=FILE")
    return methods


def from_recipe(recipe: dict[str, str]) -> Method:
    """A method by what makes it: a model or a pipeline and its device, or a peer."""
    if "peer" in recipe:
        method = _peer(recipe["peer"])
    elif "pipeline" in recipe:
        method = _pipeline(recipe["pipeline"], recipe["device"])
    else:
        method = _model(recipe["model"], recipe["device"])
    return replace(method, recipe=recipe)


def _model(text: str, device: str) -> Method:
    from wsdesc.descriptor import pretrained
    from wsdesc.descriptor.model import WSDesc

    label, separator, source = text.partition("=")
    if not separator or Path(text).is_file():  # a file's own name may have the sign
        label, separator, source = text, "", text
    if source in UNTRAINED:
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(0)
            model = WSDesc(width=UNTRAINED[source]).to(device).eval()
        return Method(label, model, fingerprint=source, device=device)
    path = pretrained.find(source)
    # On a GPU as the commands that use a model do it.
    model = WSDesc.from_pretrained(path, device).accelerate("bf16", compile=False)
    name = label if separator else Path(source).name.removesuffix(".safetensors")
    return Method(name, model, fingerprint=_digest(path), device=device)


def _pipeline(source: str, device: str) -> Method:
    """`wsdesc.register` with a model and its defaults; it finds the unit by itself."""
    from wsdesc.descriptor import pretrained
    from wsdesc.registration.pipeline import register

    path = pretrained.find(source)

    def estimate(p: Tensor, q: Tensor, unit: float) -> Tensor | None:
        found = register(p.numpy(), q.numpy(), model=str(path), device=device)
        return torch.from_numpy(found.T_target_source) if found.inliers else None

    name = Path(source).name.removesuffix(".safetensors")
    return Method(f"register ({name})", estimator=estimate, fingerprint=f"register {_digest(path)}")


def _digest(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()[:16]


def _peer(name: str) -> Method:
    """The peer of that name, of either kind, on the CPU; one that cannot run here says what to type."""
    from wsdesc import peers

    if name in peers.names("pose"):
        return Method(name, estimator=peers.pose(name))
    if name in peers.names("descriptor"):
        return Method(name, describer=peers.descriptor(name))
    raise InputError(f"no peer {name!r}: choose of {', '.join(peers.names())}")


def as_motion(pose: Any) -> NDArray[np.float64] | None:
    """A peer's answer as a rigid (4, 4); None where it has none, or one that is no rigid motion."""
    if pose is None:
        return None
    T = np.asarray(torch.as_tensor(pose).detach().cpu(), dtype=np.float64)
    if T.shape != (4, 4) or not np.isfinite(T).all():
        return None
    R = T[:3, :3]
    rigid = np.allclose(R @ R.T, np.eye(3), atol=1e-3) and np.linalg.det(R) > 0
    return T if rigid and np.allclose(T[3], (0, 0, 0, 1)) else None
