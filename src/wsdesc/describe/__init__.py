"""Scans to descriptors: local frames, differentiable voxelization, the network, and `describe`."""

from importlib import import_module
from typing import Any

from wsdesc.callable import make_callable


def describe(scan: Any, **options: Any) -> Any:
    """Keypoints, descriptors and frames of a scan: see `wsdesc.describe.description.describe`."""
    return import_module("wsdesc.describe.description").describe(scan, **options)


make_callable(__name__)
