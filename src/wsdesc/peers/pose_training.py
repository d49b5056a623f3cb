"""Train pose networks on pairs of partial shapes, made from the shapes of ModelNet40 at every step."""

from __future__ import annotations

from typing import ClassVar

import torch
from pydantic import Field
from torch import Tensor

from wsdesc.core.errors import InputError
from wsdesc.datasets.shape_pairs import PairBatch, independent_pairs, partial_pairs
from wsdesc.peers.arl import Arl
from wsdesc.peers.dcp import Dcp
from wsdesc.peers.deepgmr import DeepGmr
from wsdesc.peers.omnet import OmNet
from wsdesc.peers.pose_network import PoseNetwork
from wsdesc.peers.prnet import PrNet
from wsdesc.peers.rpmnet import RpmNet
from wsdesc.peers.training.clouds import TrainingClouds
from wsdesc.peers.training.options import PeerTrainOptions
from wsdesc.peers.training.task import PeerTask

_KEEP = 0.75  # share of the points of a cloud in PRNet's protocol: 768 of 1,024


class PoseTrainOptions(PeerTrainOptions):
    """Options of the training of a pose network."""

    noise: float = Field(0.01, ge=0, description="Standard deviation of the noise of noisy pairs.")
    noisy: float = Field(0.5, ge=0, le=1, description="Share of the pairs that have noise.")
    independent: float = Field(
        0.0, ge=0, le=1, description="Share of the batches by RPM-Net's protocol; the others follow PRNet's."
    )
    max_angle: float = Field(45.0, ge=0, le=180, description="Largest angle about each axis, in degrees.")
    max_shift: float = Field(0.5, ge=0, description="Largest translation along each axis.")


class ArlTrainOptions(PoseTrainOptions):
    """Options of the training of ARL."""

    lines: int = Field(4096, ge=16, description="Lines of a pair; the original has 15,000.")


class PoseTask(PeerTask):
    """The training of one pose network: shapes on the device, new pairs at every step."""

    options_type = PoseTrainOptions
    source = "ModelNet40 with ground truth poses"

    options: PoseTrainOptions
    network: PoseNetwork
    network_type: ClassVar[type[PoseNetwork]]

    def __init__(self, options: PoseTrainOptions, clouds: TrainingClouds, device: torch.device) -> None:
        super().__init__(options, clouds, device)
        if not clouds.objects:
            raise InputError("pose networks train on shapes: name the folder of ModelNet40's HDF5 files")
        sizes = {len(cloud) for cloud in clouds.clouds}
        if len(sizes) > 1:
            raise InputError(
                f"the shapes have between {min(sizes)} and {max(sizes)} points: equal numbers needed"
            )
        self.shapes = torch.stack(clouds.clouds).to(device)  # (S, N, 3)
        self.network = self.build(options).to(device)

    @classmethod
    def build(cls, options: PoseTrainOptions) -> PoseNetwork:
        """Create the network with random weights."""
        return cls.network_type()

    def batch(self, generator: torch.Generator) -> PairBatch:
        """Make pairs of random shapes."""
        o = self.options
        chosen = torch.randint(len(self.shapes), (o.batch,), generator=generator, device=self.device)
        kind, *noisy = torch.rand(o.batch + 1, generator=generator, device=self.device).split([1, o.batch])
        noise = o.noise * (noisy[0] < o.noisy)  # (B,)
        pose = {"max_angle": o.max_angle, "max_shift": o.max_shift}
        if bool(kind < o.independent):
            return independent_pairs(self.shapes[chosen], generator, noise=noise, **pose)
        keep = max(1, int(_KEEP * self.shapes.shape[1]))
        return partial_pairs(self.shapes[chosen], generator, keep=keep, noise=noise, **pose)

    def loss(self, batch: PairBatch, generator: torch.Generator) -> Tensor:
        """Compute the loss of the network; its own random choices depend on the step only."""
        with torch.random.fork_rng(devices=[self.device] if self.device.type == "cuda" else []):
            torch.manual_seed(generator.initial_seed())
            return self.network.loss(*batch)


class DcpTask(PoseTask):
    """The training of DCP-v2."""

    network_type = Dcp


class RpmNetTask(PoseTask):
    """The training of RPM-Net."""

    network_type = RpmNet


class DeepGmrTask(PoseTask):
    """The training of DeepGMR."""

    network_type = DeepGmr


class PrNetTask(PoseTask):
    """The training of PRNet."""

    network_type = PrNet


class OmNetTask(PoseTask):
    """The training of OMNet."""

    network_type = OmNet


class ArlTask(PoseTask):
    """The training of ARL, without labels."""

    options_type = ArlTrainOptions
    source = "ModelNet40 without labels"

    @classmethod
    def build(cls, options: PoseTrainOptions) -> PoseNetwork:
        """Create the network with random weights."""
        assert isinstance(options, ArlTrainOptions)
        return Arl(options.lines)
