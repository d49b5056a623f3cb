"""WSDesc aligns 3D scans, and learns to do it from unlabelled scans.

Public names are imported on first use, so that `import wsdesc` and `wsdesc --help` do not wait for torch.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from wsdesc.adaptation.pipeline import adapt
    from wsdesc.adaptation.result import Adaptation
    from wsdesc.cloud.cloud import Cloud
    from wsdesc.cloud.convert import as_cloud
    from wsdesc.cloud.files import read_cloud, read_points, write_points
    from wsdesc.cloud.viewpoint import Viewpoint
    from wsdesc.cloud.write import write_cloud
    from wsdesc.core.errors import WSDescError
    from wsdesc.descriptor.describe import describe
    from wsdesc.descriptor.description import Description
    from wsdesc.descriptor.lrf import local_frames
    from wsdesc.descriptor.model import WSDesc
    from wsdesc.descriptor.voxelize import voxelize
    from wsdesc.finding.pipeline import find
    from wsdesc.finding.result import Finding, Instance
    from wsdesc.learning.ablations import ablate
    from wsdesc.learning.distillation import distill
    from wsdesc.learning.losses import BatchHardLoss, RigidityLoss
    from wsdesc.learning.options import TrainOptions
    from wsdesc.learning.pairs import pairs
    from wsdesc.learning.run import TrainingRun
    from wsdesc.learning.training import train
    from wsdesc.mapping.result import Location
    from wsdesc.mapping.site_map import Map
    from wsdesc.peers.training import train_peer
    from wsdesc.reconstruction.pipeline import reconstruct
    from wsdesc.reconstruction.result import Reconstruction
    from wsdesc.registration.many import register_many
    from wsdesc.registration.pipeline import register, register_described
    from wsdesc.registration.result import AlternativePose, Registration
    from wsdesc.view.show import show

__version__ = "0.13.0"

_MODULE_OF = {
    "Adaptation": "adaptation.result",
    "AlternativePose": "registration.result",
    "BatchHardLoss": "learning.losses",
    "Cloud": "cloud.cloud",
    "Description": "descriptor.description",
    "Finding": "finding.result",
    "Instance": "finding.result",
    "Location": "mapping.result",
    "Map": "mapping.site_map",
    "Reconstruction": "reconstruction.result",
    "Registration": "registration.result",
    "RigidityLoss": "learning.losses",
    "TrainOptions": "learning.options",
    "TrainingRun": "learning.run",
    "Viewpoint": "cloud.viewpoint",
    "WSDesc": "descriptor.model",
    "WSDescError": "core.errors",
    "ablate": "learning.ablations",
    "adapt": "adaptation.pipeline",
    "as_cloud": "cloud.convert",
    "describe": "descriptor.describe",
    "distill": "learning.distillation",
    "find": "finding.pipeline",
    "local_frames": "descriptor.lrf",
    "pairs": "learning.pairs",
    "read_cloud": "cloud.files",
    "read_points": "cloud.files",
    "reconstruct": "reconstruction.pipeline",
    "register": "registration.pipeline",
    "register_described": "registration.pipeline",
    "register_many": "registration.many",
    "show": "view.show",
    "train": "learning.training",
    "train_peer": "peers.training",
    "voxelize": "descriptor.voxelize",
    "write_cloud": "cloud.write",
    "write_points": "cloud.files",
}
_PACKAGES = (
    "adaptation", "alignment", "cloud", "core", "datasets", "descriptor", "evaluation", "finding",
    "learning", "mapping", "matching", "peers", "reconstruction", "registration", "view",
)  # fmt: skip

__all__ = [  # the keys of _MODULE_OF, spelled out for editors
    "Adaptation",
    "AlternativePose",
    "BatchHardLoss",
    "Cloud",
    "Description",
    "Finding",
    "Instance",
    "Location",
    "Map",
    "Reconstruction",
    "Registration",
    "RigidityLoss",
    "TrainOptions",
    "TrainingRun",
    "Viewpoint",
    "WSDesc",
    "WSDescError",
    "ablate",
    "adapt",
    "as_cloud",
    "describe",
    "distill",
    "find",
    "local_frames",
    "pairs",
    "read_cloud",
    "read_points",
    "reconstruct",
    "register",
    "register_described",
    "register_many",
    "show",
    "train",
    "train_peer",
    "voxelize",
    "write_cloud",
    "write_points",
]


def __getattr__(name: str) -> Any:
    if name in _MODULE_OF:
        return getattr(import_module(f"wsdesc.{_MODULE_OF[name]}"), name)
    if name in _PACKAGES:
        return import_module(f"wsdesc.{name}")
    raise AttributeError(f"module 'wsdesc' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted([*globals(), *__all__, *_PACKAGES])
