"""WSDesc aligns 3D scans, and learns to do it from unlabelled scans.

The public names live in the rooms of the package and are fetched on first use, so that importing
`wsdesc` (and asking the command for help) does not wait for torch.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from wsdesc.cloud.files import read_points, write_points
    from wsdesc.describe import describe
    from wsdesc.describe.extractor import WSDesc
    from wsdesc.describe.lrf import local_frames
    from wsdesc.describe.voxelize import voxelize
    from wsdesc.errors import WSDescError
    from wsdesc.learn.losses import BatchHardLoss, RigidityLoss
    from wsdesc.reconstruct import Reconstruction, reconstruct
    from wsdesc.register import Registration, register

__version__ = "0.2.0"

__all__ = [
    "BatchHardLoss",
    "Reconstruction",
    "Registration",
    "RigidityLoss",
    "WSDesc",
    "WSDescError",
    "describe",
    "local_frames",
    "read_points",
    "reconstruct",
    "register",
    "voxelize",
    "write_points",
]

_HOME_OF = {
    "BatchHardLoss": "wsdesc.learn.losses",
    "Reconstruction": "wsdesc.reconstruct",
    "Registration": "wsdesc.register",
    "RigidityLoss": "wsdesc.learn.losses",
    "WSDesc": "wsdesc.describe.extractor",
    "WSDescError": "wsdesc.errors",
    "describe": "wsdesc.describe",
    "local_frames": "wsdesc.describe.lrf",
    "read_points": "wsdesc.cloud.files",
    "reconstruct": "wsdesc.reconstruct",
    "register": "wsdesc.register",
    "voxelize": "wsdesc.describe.voxelize",
    "write_points": "wsdesc.cloud.files",
}


def __getattr__(name: str) -> Any:
    if name not in _HOME_OF:
        raise AttributeError(f"module 'wsdesc' has no attribute {name!r}")
    return getattr(import_module(_HOME_OF[name]), name)


def __dir__() -> list[str]:
    return sorted([*globals(), *__all__])
