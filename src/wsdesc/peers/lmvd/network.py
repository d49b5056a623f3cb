"""The networks of LMVD: a CNN for each view, soft pooling over the views, and a linear embedding."""

from __future__ import annotations

import torch
from torch import Tensor, nn

_WIDTHS = (1, 32, 32, 64, 64, 128, 128)


class _Layer(nn.Module):
    def __init__(self, before: int, after: int, stride: int) -> None:
        super().__init__()
        self.conv = nn.Conv2d(before, after, 3, stride, padding=1)

    def forward(self, x: Tensor) -> Tensor:
        return nn.functional.instance_norm(self.conv(x)).relu()


class ViewNetwork(nn.Module):
    """Depth images (V, 1, 64, 64) → features (V, 128, 8, 8)."""

    def __init__(self) -> None:
        super().__init__()
        for k in range(6):
            self.add_module(f"layer{k + 1}", _Layer(_WIDTHS[k], _WIDTHS[k + 1], 2 if k % 2 == 0 else 1))

    def forward(self, x: Tensor) -> Tensor:
        for layer in self.children():
            x = layer(x)
        return x


class SoftViewPooling(nn.Module):
    """Features (B, V, 128, 8, 8) of V views → their weighted mean (B, 128, 8, 8)."""

    def __init__(self) -> None:
        super().__init__()
        self.attn = nn.Sequential(
            nn.Conv2d(128, 64, 3, 2, padding=1),
            nn.ReLU(),
            nn.ConvTranspose2d(64, 128, 3, 2, padding=1, output_padding=1),
        )

    def forward(self, x: Tensor) -> Tensor:
        weights: Tensor = self.attn(x.flatten(0, 1)).unflatten(0, x.shape[:2]).softmax(dim=1)
        return (weights * x).sum(dim=1)


class Embedding(nn.Sequential):
    """Pooled features (B, 128, 8, 8) → (B, 32)."""

    def __init__(self) -> None:
        super().__init__(nn.Conv2d(128, 32, 8))

    def forward(self, x: Tensor) -> Tensor:
        return torch.flatten(super().forward(x), 1)
