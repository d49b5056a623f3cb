"""Methods that a benchmark evaluates: descriptors of keypoints, or estimators of poses.

Models of this package and peers implement one of the two protocols below.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal, Protocol

import numpy as np
import torch
from torch import Tensor

from wsdesc.core.errors import InputError, WSDescError
from wsdesc.core.geometry import Floats, is_rigid
from wsdesc.evaluation.options import UNTRAINED, split_model

Kind = Literal["model", "untrained", "pipeline", "peer"]
_PIPELINE = "register "  # prefix of the fingerprint of a pipeline
PEER_PREFIX = "peer "  # of the fingerprint of a peer with weights


class MethodFailure(WSDescError):
    """A peer raised an error on one scan or pair. The pair fails, the run continues."""


class Describer(Protocol):
    """Describe keypoints (K, 3) of points (N, 3), where `unit` is the length of one metre: (K, C)."""

    def __call__(self, points: Tensor, keypoints: Tensor, unit: float, /) -> Tensor: ...


class PoseEstimator(Protocol):
    """Estimate T_target_source (4, 4) of the full clouds (N, 3) and (M, 3); None if no pose is found."""

    def __call__(self, source: Tensor, target: Tensor, unit: float, /) -> Tensor | None: ...


@dataclass(frozen=True)
class Method:
    """A named descriptor or pose estimator: one row of a table."""

    name: str
    describer: Describer | None = None
    estimator: PoseEstimator | None = None
    fingerprint: str = ""  # hash of the weights; results of other weights are not continued
    device: str = "cpu"  # device of the points that are described
    recipe: dict[str, str] | None = None  # argument of `from_recipe` in another process
    source: str = ""  # origin of the weights of a peer
    full_cloud: bool = False  # describes keypoints in the scan as it is, not downsampled

    def __post_init__(self) -> None:
        if (self.describer is None) == (self.estimator is None):
            raise InputError(f"{self.name}: a method needs either a describer or an estimator")

    @property
    def file_stem(self) -> str:
        """The name with characters that file names cannot hold replaced."""
        return re.sub(r"[^\w.+-]+", "_", self.name)

    @property
    def kind(self) -> Kind:
        """Kind of the method: model, pipeline or peer."""
        if self.fingerprint in UNTRAINED:
            return "untrained"
        if self.fingerprint.startswith(_PIPELINE):
            return "pipeline"
        if self.fingerprint.startswith(PEER_PREFIX):
            return "peer"
        return "model" if self.describer and self.fingerprint else "peer"

    @torch.inference_mode()
    def describe(self, points: Tensor, keypoints: Tensor, unit: float, where: str) -> Tensor:
        """Compute descriptors (K, C) on the method's device. They may hold NaN.

        Raises:
            InputError: The descriptors have a wrong shape; the message names the method and `where`.
            MethodFailure: A peer raised an error.
        """
        assert self.describer is not None
        with self._peer_errors(where):
            descriptors = self.describer(points.to(self.device), keypoints.to(self.device), unit)
        descriptors = torch.as_tensor(descriptors).detach()
        if descriptors.ndim != 2 or len(descriptors) != len(keypoints):
            raise InputError(
                f"{self.name}, {where}: returned {tuple(descriptors.shape)} for {len(keypoints)} keypoints, "
                "not (K, C)"
            )
        return descriptors

    def estimate(self, source: Tensor, target: Tensor, unit: float, where: str) -> Any:
        """Estimate T_target_source of two clouds on the method's device; None if no pose is found.

        Raises:
            MethodFailure: A peer raised an error.
        """
        assert self.estimator is not None
        with self._peer_errors(where):
            return self.estimator(source.to(self.device), target.to(self.device), unit)

    @contextmanager
    def _peer_errors(self, where: str) -> Iterator[None]:
        """Convert errors of a peer to `MethodFailure`; errors of own methods stop the run."""
        try:
            yield
        except Exception as error:
            if self.kind != "peer":
                raise
            first = (str(error).strip() or type(error).__name__).splitlines()[0]
            raise MethodFailure(f"{self.name}, {where}: {first}") from error


def load_methods(
    models: Sequence[str],
    peers: Sequence[str],
    device: str = "cpu",
    pipelines: Sequence[str] = (),
    skip: Callable[[str], None] | None = None,
    peer_weights: str | Path | None = None,
) -> list[Method]:
    """Load methods by name.

    Args:
        models: Files of weights, names of shipped weights, or `untrained`, `untrained-fast`. `NAME=MODEL` is
            called NAME in the tables.
        peers: Names of peers.
        device: Device of models, pipelines and learned peers.
        pipelines: Weights whose full `register` pipeline is evaluated.
        skip: Called with one line for each peer that is not installed or has no weights. Without it, or
            where no method is left, a missing peer is an error.
        peer_weights: Folder of the weights of learned peers.
    """
    from wsdesc.peers import PeerUnavailableError

    methods = [from_recipe({"model": model, "device": device}) for model in models]
    methods += [from_recipe({"pipeline": model, "device": device}) for model in pipelines]
    missing = []
    for name in peers:
        try:
            recipe = {"peer": name, "device": device}
            folder = {"weights": str(Path(peer_weights).absolute())} if peer_weights is not None else {}
            methods.append(from_recipe(recipe | folder))
        except PeerUnavailableError as error:
            missing.append(error)
            if skip is None:
                raise
            skip(f"{name} is skipped: {error}")
    if not methods:
        raise missing[0] if missing else InputError("no method given: pass --model, --register or --peer")
    stems = [method.file_stem for method in methods]
    for stem in stems:
        if stems.count(stem) > 1:
            raise InputError(f"two methods are called {stem}: rename one with --model NAME=FILE")
    return methods


def from_recipe(recipe: dict[str, str]) -> Method:
    """Load one method from a dict with the key "model", "pipeline" or "peer" and the key "device".

    Learned peers also need "weights", the folder of their files.
    """
    if "peer" in recipe:
        method = _peer(recipe["peer"], recipe.get("device", "cpu"), recipe.get("weights"))
    elif "pipeline" in recipe:
        method = _pipeline(recipe["pipeline"], recipe["device"])
    else:
        method = _model(recipe["model"], recipe["device"])
    return replace(method, recipe=recipe)


def _model(text: str, device: str) -> Method:
    from wsdesc.descriptor import pretrained
    from wsdesc.descriptor.model import WSDesc

    label, source = split_model(text)
    if source in UNTRAINED:
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(0)
            model = WSDesc(width=UNTRAINED[source]).to(device).eval()
        return Method(label or source, model, fingerprint=source, device=device)
    path = pretrained.find(source)
    # On a GPU with the same precision as the commands that use a model.
    model = WSDesc.from_pretrained(path, device).accelerate("bf16", compile=False)
    name = label or Path(source).name.removesuffix(".safetensors")
    return Method(name, model, fingerprint=_digest(path), device=device)


def _pipeline(source: str, device: str) -> Method:
    """Wrap `wsdesc.register` with default options; it measures the unit itself."""
    from wsdesc.descriptor import pretrained
    from wsdesc.registration.pipeline import register

    path = pretrained.find(source)

    def estimate(p: Tensor, q: Tensor, unit: float) -> Tensor | None:
        result = register(p.cpu().numpy(), q.cpu().numpy(), model=str(path), device=device)
        return torch.from_numpy(result.T_target_source) if result.inliers else None

    name = Path(source).name.removesuffix(".safetensors")
    fingerprint = f"{_PIPELINE}{_digest(path)}"
    return Method(f"register ({name})", estimator=estimate, fingerprint=fingerprint, device=device)


def _digest(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()[:16]


def _peer(name: str, device: str, weights: str | None) -> Method:
    """Load a peer; only those with weights compute on the device."""
    from wsdesc import peers

    if name not in peers.names():
        raise InputError(f"unknown peer {name!r}: choose one of {', '.join(peers.names())}")
    if name in peers.names("pose"):
        method = Method(name, estimator=peers.pose(name, weights=weights))
    else:
        describer = peers.descriptor(name, weights=weights)
        method = Method(name, describer, full_cloud=getattr(describer, "FULL_CLOUD", False))
    origin = peers.origin(name, weights=weights)
    if origin is None:
        return method
    return replace(method, fingerprint=PEER_PREFIX + origin.fingerprint, source=origin.source, device=device)


def as_pose(estimate: Any) -> Floats | None:
    """Convert the result of an estimator to a rigid (4, 4); None if it is missing or not rigid."""
    if estimate is None:
        return None
    T = np.asarray(torch.as_tensor(estimate).detach().cpu(), dtype=np.float64)
    return T if T.shape == (4, 4) and is_rigid(T) else None
