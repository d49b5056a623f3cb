"""PointNetLK (Aoki et al. 2019): Lucas-Kanade on global PointNet features, from published weights.

The pose of the source is updated so that its feature equals that of the target. The derivative of the feature
with respect to the pose is computed once, by finite differences at the target. Both clouds must show
the same surface: the feature of a partial view differs.
"""

from __future__ import annotations

from pathlib import Path

import torch
from torch import Tensor, nn

from wsdesc.cloud.neighbours import check_points
from wsdesc.core.geometry import check_length
from wsdesc.peers.weights import load_network

_WIDTHS = (3, 64, 64, 64, 128, 1024)
_ITERATIONS = 10
_SMALL_STEP = 1e-7  # norm of a twist at which the iteration stops
_MIN_POINTS, _MAX_POINTS = 10, 4096  # points of a cloud; of more, a random sample is used


class _Feature(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        for k in range(5):
            self.add_module(f"conv{k + 1}", nn.Conv1d(_WIDTHS[k], _WIDTHS[k + 1], 1))
            self.add_module(f"bn{k + 1}", nn.BatchNorm1d(_WIDTHS[k + 1]))

    def forward(self, clouds: Tensor) -> Tensor:
        """Compute features (B, 1024) of clouds (B, N, 3)."""
        x = clouds.transpose(1, 2)
        for k in range(5):
            x = self.get_submodule(f"bn{k + 1}")(self.get_submodule(f"conv{k + 1}")(x)).relu()
        return x.amax(dim=2)


class _Network(nn.Module):
    dt: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.feature_model = _Feature()
        self.register_buffer("dt", torch.zeros(1, 6))  # steps of the finite differences


class PointNetLK:
    """A pose peer. It runs on the device of the points."""

    SOURCE = "PointNetLK's weights, github vinits5/learning3d, MIT, converted to safetensors"
    FILES = ("pointnetlk.safetensors",)

    def __init__(self, weights: Path) -> None:
        self.network = load_network(_Network(), weights, self.FILES[0], self.SOURCE)

    @torch.no_grad()
    def __call__(self, source: Tensor, target: Tensor, unit: float = 1.0, *, seed: int = 0) -> Tensor | None:
        """Estimate T_target_source (4, 4) float64 of source (N, 3) and target (M, 3); None if it fails.

        The result does not depend on `unit`: the network sees the target scaled into the unit sphere.
        """
        check_length(unit, "the unit")
        check_points(source, "source")
        check_points(target, "target")
        if min(len(source), len(target)) < _MIN_POINTS:
            return None
        self.network.to(target.device)
        p, q = (_sample(cloud, seed).to(target.device).double() for cloud in (source, target))
        p_mean, q_mean = p.mean(0), q.mean(0)
        scale = float((q - q_mean).norm(dim=1).max())
        if scale == 0:
            return None
        T_local = self._solve(((p - p_mean) / scale).float(), ((q - q_mean) / scale).float())
        if T_local is None:
            return None
        T = T_local.double().cpu()
        T[:3, 3] = scale * T[:3, 3] + q_mean.cpu() - T[:3, :3] @ p_mean.cpu()
        return T

    def _solve(self, source: Tensor, target: Tensor) -> Tensor | None:
        """Align two centred clouds in the unit sphere: T_target_source (4, 4), or None."""
        feature, steps = self.network.feature_model, self.network.dt[0]
        goal = feature(target[None])[0]  # (1024,)
        moved = _move(target, exponential(-torch.diag(steps)))  # (6, M, 3)
        jacobian = ((goal - feature(moved)) / steps[:, None]).T.double()  # (1024, 6)
        normal_matrix = jacobian.T @ jacobian
        if not bool(normal_matrix.isfinite().all()) or int(torch.linalg.matrix_rank(normal_matrix)) < 6:
            return None
        inverse = torch.linalg.solve(normal_matrix, jacobian.T)  # (6, 1024)
        T = torch.eye(4, dtype=torch.float64, device=target.device)
        for _ in range(_ITERATIONS):
            residual = feature(_move(source, T[None].float()))[0] - goal
            twist = -inverse @ residual.double()
            if float(twist.norm()) < _SMALL_STEP:
                break
            T = exponential(twist[None])[0] @ T
        return T if bool(T.isfinite().all()) else None


def exponential(twists: Tensor) -> Tensor:
    """Convert twists (B, 6), rotation first, to poses (B, 4, 4)."""
    generator = twists.new_zeros(len(twists), 4, 4)
    x, y, z = twists[:, 0], twists[:, 1], twists[:, 2]
    generator[:, 2, 1], generator[:, 0, 2], generator[:, 1, 0] = x, y, z
    generator[:, 1, 2], generator[:, 2, 0], generator[:, 0, 1] = -x, -y, -z
    generator[:, :3, 3] = twists[:, 3:]
    poses: Tensor = torch.linalg.matrix_exp(generator)
    return poses


def _move(cloud: Tensor, T: Tensor) -> Tensor:
    """Transform a cloud (N, 3) by several poses (B, 4, 4): (B, N, 3)."""
    return cloud @ T[:, :3, :3].transpose(1, 2) + T[:, None, :3, 3]


def _sample(cloud: Tensor, seed: int) -> Tensor:
    """Draw at most `_MAX_POINTS` points of a cloud (N, 3)."""
    if len(cloud) <= _MAX_POINTS:
        return cloud
    order = torch.randperm(len(cloud), generator=torch.Generator().manual_seed(seed))
    return cloud[order[:_MAX_POINTS].to(cloud.device)]
