"""Synthetic sites, and scans of them."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from wsdesc.datasets.synthetic.sites.building import building
from wsdesc.datasets.synthetic.sites.courtyard import courtyard
from wsdesc.datasets.synthetic.sites.hall import hall
from wsdesc.datasets.synthetic.sites.objects import objects, tabletop
from wsdesc.datasets.synthetic.sites.site import Site
from wsdesc.datasets.synthetic.sites.stairwell import stairwell
from wsdesc.datasets.synthetic.sites.street import street
from wsdesc.datasets.synthetic.sites.vegetation import vegetation
from wsdesc.datasets.synthetic.sites.warehouse import warehouse

__all__ = ["SITES", "SUITABLE", "Site", "build_site"]

_LIDAR = ("lidar16", "lidar32", "lidar64", "lidar128")
_OUTDOORS = (*_LIDAR, "terrestrial", "solid_state")
_INDOORS = (*_OUTDOORS, "depth_camera", "fused_camera")
_MAKERS: dict[str, tuple[Callable[[np.random.Generator], Site], tuple[str, ...]]] = {
    "street": (street, _OUTDOORS),
    "courtyard": (courtyard, _OUTDOORS),
    "hall": (hall, _INDOORS),
    "warehouse": (warehouse, _INDOORS),
    "building": (building, _INDOORS),
    "stairwell": (stairwell, _INDOORS),
    "vegetation": (vegetation, _OUTDOORS),
    "objects": (objects, ("structured_light", "orthographic")),
    "tabletop": (tabletop, ("structured_light", "depth_camera", "fused_camera")),
}
SITES = tuple(_MAKERS)
SUITABLE = {kind: sensors for kind, (_, sensors) in _MAKERS.items()}


def build_site(kind: str, seed: int) -> Site:
    """Build the site of a kind with this seed."""
    return _MAKERS[kind][0](np.random.default_rng([seed, 0x10, SITES.index(kind)]))
