"""Weights for tests: random ones in the layout of the published files, and the published ones."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file
from torch import nn


def save_random(network: nn.Module, path: Path, prefix: str = "", seed: int = 0) -> None:
    """Write random weights of a network; running variances are positive."""
    generator = torch.Generator().manual_seed(seed)
    tensors = {}
    for name, tensor in network.state_dict().items():
        if name.endswith("num_batches_tracked"):
            tensors[prefix + name] = tensor.clone()
            continue
        fan_in = max(1, tensor[0].numel()) if tensor.ndim > 1 else 1
        values = torch.randn(tensor.shape, generator=generator) / fan_in**0.5
        tensors[prefix + name] = values.abs() + 0.5 if name.endswith("running_var") else values
    save_file(tensors, path)


def published_folder(data_folder: Path) -> Path:
    """Return the folder of published weights; skip the test where it is absent."""
    folder = data_folder / "peers"
    if not folder.is_dir():
        pytest.skip(f"{folder} is absent: published weights of peers")
    return folder
