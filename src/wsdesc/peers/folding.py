"""FoldingNet's decoder (Yang et al. 2018), which folds a plane onto a set of points; Chamfer distance."""

from __future__ import annotations

import torch
from torch import Tensor, nn

_WIDTHS = (256, 128, 64, 32)


class FoldingDecoder(nn.Module):
    """Reconstruct a set of points from a codeword: two folds of a square grid.

    Args:
        codeword: Length of the codeword.
        dimension: Numbers per point.
        points: Number of points; rounded to a square.
    """

    grid: Tensor

    def __init__(self, codeword: int, dimension: int, points: int = 1024) -> None:
        super().__init__()
        axis = torch.linspace(0, 1, round(points**0.5))
        self.register_buffer("grid", torch.cartesian_prod(axis, axis), persistent=False)  # (P, 2)
        self.folds = nn.ModuleList([_Fold(codeword, 2, dimension), _Fold(codeword, dimension, dimension)])

    def forward(self, codewords: Tensor) -> Tensor:
        """Decode codewords (B, C) to points (B, P, dimension)."""
        points = self.grid.expand(len(codewords), -1, -1)
        for fold in self.folds:
            points = fold(codewords, points)
        return points


class _Fold(nn.Module):
    """A perceptron on the codeword and one point."""

    def __init__(self, codeword: int, inputs: int, outputs: int) -> None:
        super().__init__()
        self.codeword = nn.Linear(codeword, _WIDTHS[0])  # its part of the first layer, once per codeword
        self.point = nn.Linear(inputs, _WIDTHS[0], bias=False)
        layers: list[nn.Module] = []
        for a, b in zip(_WIDTHS, (*_WIDTHS[1:], outputs), strict=True):
            layers += [nn.ReLU(), nn.Linear(a, b)]
        self.layers = nn.Sequential(*layers)

    def forward(self, codewords: Tensor, points: Tensor) -> Tensor:
        result: Tensor = self.layers(self.codeword(codewords)[:, None] + self.point(points))
        return result


def chamfer(x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
    """Compute the mean squared distances from x (B, N, D) to y (B, M, D), and from y to x: two (B,)."""
    with torch.autocast(x.device.type, enabled=False):
        x, y = x.float(), y.float()
        with torch.no_grad():
            squared = torch.baddbmm(y.square().sum(-1)[:, None], x, y.transpose(1, 2), alpha=-2)  # (B, N, M)
            to_y = squared.argmin(2)
            to_x = squared.add_(x.square().sum(-1, keepdim=True)).argmin(1)
        forward = (x - _take(y, to_y)).square().sum(-1).mean(1)
        return forward, (y - _take(x, to_x)).square().sum(-1).mean(1)


def _take(points: Tensor, index: Tensor) -> Tensor:
    return points.gather(1, index[..., None].expand(-1, -1, points.shape[-1]))


def initialise(network: nn.Module) -> None:
    """Draw the weights of linear layers by Xavier's normal distribution; biases are zero."""
    for module in network.modules():
        if isinstance(module, nn.Linear):
            nn.init.xavier_normal_(module.weight)
            if module.bias is not None:
                nn.init.zeros_(module.bias)
