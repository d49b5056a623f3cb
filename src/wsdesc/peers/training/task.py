"""The training task of a peer: options, samples, network and loss."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from wsdesc.peers.training.clouds import TrainingClouds
from wsdesc.peers.training.options import PeerTrainOptions


class PeerTask(ABC):
    """The training of one peer.

    A subclass prepares its data in `__init__` and sets `network`. Random choices come from the generator that
    `batch` and `loss` receive, so that a resumed training repeats them. It lies on the device of the training
    and depends on the seed and the step only.

    Args:
        options: An instance of `options_type`.
        clouds: The training scans.
        device: Device of the network and of all samples.
    """

    options_type: ClassVar[type[PeerTrainOptions]] = PeerTrainOptions
    source: ClassVar[str] = "unlabelled scans"  # training data, for the header of the weights
    needs_poses: ClassVar[bool] = False  # whether the poses beside the scans are read

    network: nn.Module  # on the device; initialised under the seed of the training

    def __init__(self, options: Any, clouds: TrainingClouds, device: torch.device) -> None:
        self.options, self.device = options, device

    @abstractmethod
    def batch(self, generator: torch.Generator) -> Any:
        """Make one batch of `options.batch` samples on the device; called without gradients."""

    @abstractmethod
    def loss(self, batch: Any, generator: torch.Generator) -> Tensor:
        """Compute the loss () of a batch; on CUDA in the precision of the options."""

    def inference_state(self) -> dict[str, Tensor]:
        """Return the tensors that the peer needs after the training; by default all of the network."""
        return self.network.state_dict()
