"""Layers that several pose networks share: graphs, embeddings, attention and soft matches.

Features are channel last: (B, N, C) of points, (B, N, K, C) of edges to K neighbours.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from itertools import pairwise

import torch
from torch import Tensor, nn
from torch.nn import functional

from wsdesc.peers.pose_geometry import exact, feature_graph, gather, nearest


class Normed(nn.Module):
    """Batch normalisation of the last channel, then an activation."""

    def __init__(self, width: int, slope: float = 0.0) -> None:
        super().__init__()
        self.norm = nn.BatchNorm1d(width)
        self.slope = slope

    def forward(self, x: Tensor) -> Tensor:
        """Normalise features (..., C)."""
        y = self.norm(x.flatten(0, -2)).view_as(x)
        return functional.leaky_relu(y, self.slope) if self.slope else functional.relu(y)


class ExactLinear(nn.Linear):
    """A linear layer of coordinates, in float32."""

    def forward(self, x: Tensor) -> Tensor:
        """Map features (..., C)."""
        return exact(super().forward)(x)


def _linear(before: int, after: int) -> nn.Linear:
    kind = ExactLinear if before == 3 else nn.Linear  # 3: coordinates
    return kind(before, after, bias=False)


def pointwise(*widths: int, slope: float = 0.0) -> nn.Sequential:
    """Build layers for each point: linear, batch normalisation, ReLU (leaky with a slope)."""
    layers: list[nn.Module] = []
    for before, after in pairwise(widths):
        layers += [_linear(before, after), Normed(after, slope)]
    return nn.Sequential(*layers)


class EdgeLinear(nn.Module):
    """A linear layer of edges (neighbour, centre), computed at the points before edges are formed."""

    def __init__(self, before: int, after: int) -> None:
        super().__init__()
        self.neighbour, self.centre = _linear(before, after), _linear(before, after)

    def forward(self, features: Tensor, graph: Tensor) -> Tensor:
        """Map features (B, N, C) and their graph (B, N, K) to edges (B, N, K, D)."""
        edges: Tensor = gather(self.neighbour(features), graph) + self.centre(features)[:, :, None]
        return edges


class StaticDgcnn(nn.Module):
    """DCP's embedding: one graph of coordinates, edge-wise layers, a maximum over neighbours after each."""

    def __init__(self, width: int = 512, neighbours: int = 20) -> None:
        super().__init__()
        self.neighbours = neighbours
        self.first = EdgeLinear(3, 64)
        self.first_norm = Normed(64)
        self.edges = nn.ModuleList([pointwise(64, 64), pointwise(64, 128), pointwise(128, 256)])
        self.last = pointwise(512, width)

    def forward(self, points: Tensor) -> Tensor:
        """Embed points (B, N, 3): (B, N, C)."""
        with torch.no_grad():
            graph = nearest(points, points, self.neighbours)[1]
        x = self.first_norm(self.first(points, graph))
        maxima = [x.amax(2)]
        for layer in self.edges:
            x = layer(x)
            maxima.append(x.amax(2))
        embedding: Tensor = self.last(torch.cat(maxima, -1))
        return embedding


class DynamicDgcnn(nn.Module):
    """PRNet's embedding: a new graph in feature space before each edge layer."""

    def __init__(self, width: int = 512, neighbours: int = 20, slope: float = 0.2) -> None:
        super().__init__()
        self.neighbours = neighbours
        sizes = [3, 64, 64, 128, 256]
        self.edges = nn.ModuleList([EdgeLinear(a, b) for a, b in pairwise(sizes)])
        self.norms = nn.ModuleList([Normed(b, slope) for b in sizes[1:]])
        self.last = pointwise(512, width, slope=slope)

    def forward(self, points: Tensor) -> Tensor:
        """Embed points (B, N, 3): (B, N, C)."""
        x, parts = points, []
        for edge, norm in zip(self.edges, self.norms, strict=True):
            x = norm(edge(x, feature_graph(x, self.neighbours))).amax(2)
            parts.append(x)
        embedding: Tensor = self.last(torch.cat(parts, -1))
        return embedding


class _LayerNorm(nn.Module):
    """The layer norm of DCP: unbiased standard deviation, to which 1e-6 is added."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.scale, self.shift = nn.Parameter(torch.ones(width)), nn.Parameter(torch.zeros(width))

    def forward(self, x: Tensor) -> Tensor:
        x = x.float()
        return self.scale * (x - x.mean(-1, keepdim=True)) / (x.std(-1, keepdim=True) + 1e-6) + self.shift


class _Attention(nn.Module):
    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.query, self.key, self.value, self.out = (nn.Linear(width, width) for _ in range(4))

    def forward(self, x: Tensor, memory: Tensor) -> Tensor:
        q, k, v = (
            layer(y).unflatten(-1, (self.heads, -1)).transpose(1, 2)
            for layer, y in ((self.query, x), (self.key, memory), (self.value, memory))
        )
        attended = functional.scaled_dot_product_attention(q, k, v)
        return self.out(attended.transpose(1, 2).flatten(2))  # type: ignore[no-any-return]


class Transformer(nn.Module):
    """One encoder block and one decoder block, normalised before each part, without dropout."""

    def __init__(self, width: int = 512, heads: int = 4, hidden: int = 1024, slope: float = 0.0) -> None:
        super().__init__()
        activation: Callable[[], nn.Module] = (lambda: nn.LeakyReLU(slope)) if slope else nn.ReLU
        self.attention = nn.ModuleList(
            [_Attention(width, heads) for _ in range(3)]
        )  # encoder, decoder, cross
        self.forwards = nn.ModuleList(
            [
                nn.Sequential(nn.Linear(width, hidden), activation(), nn.Linear(hidden, width))
                for _ in range(2)
            ]
        )
        self.norms = nn.ModuleList([_LayerNorm(width) for _ in range(7)])

    def forward(self, other: Tensor, own: Tensor) -> Tensor:
        """Encode features (B, M, C) of the other cloud, decode own features (B, N, C): (B, N, C)."""
        encoder, decoder, cross = self.attention
        x = other
        y = self.norms[0](x)
        x = x + encoder(y, y)
        memory = self.norms[2](x + self.forwards[0](self.norms[1](x)))
        x = own
        y = self.norms[3](x)
        x = x + decoder(y, y)
        x = x + cross(self.norms[4](x), memory)
        result: Tensor = self.norms[6](x + self.forwards[1](self.norms[5](x)))
        return result

    def contextual(self, source: Tensor, target: Tensor) -> tuple[Tensor, Tensor]:
        """Add to the features of each cloud what the transformer makes of both."""
        return source + self(target, source), target + self(source, target)


@exact
def soft_targets(source_features: Tensor, target_features: Tensor, target: Tensor) -> Tensor:
    """Average target points (B, M, 3) by the softmax of scaled scalar products: (B, N, 3)."""
    scores = source_features @ target_features.mT / math.sqrt(target_features.shape[-1])  # (B, N, M)
    return scores.softmax(-1) @ target
