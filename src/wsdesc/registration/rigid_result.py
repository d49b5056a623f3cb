"""Registrations with a factor of lengths as rigid ones, of a source that is multiplied by the factor."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from wsdesc.cloud.viewpoint import Viewpoint
from wsdesc.core.similarity import factor_of, scaled_first
from wsdesc.descriptor.description import Description

if TYPE_CHECKING:
    from wsdesc.registration.result import Registration


def rigid_result(result: Registration) -> Registration:
    """Return the registration of the source times its factor; see `Registration.as_rigid`."""
    factor = result.factor
    if factor == 1:
        return result
    source, target = result.viewpoints
    return replace(
        result,
        T_target_source=scaled_first(result.T_target_source, 1 / factor),
        scale=result.scale / factor,
        scale_deviation=result.scale_deviation / factor,
        alternatives=[
            replace(pose, T_target_source=scaled_first(pose.T_target_source, 1 / factor))
            for pose in result.alternatives
            if np.isclose(factor_of(pose.T_target_source), factor, rtol=1e-6)
        ],
        viewpoints=(_scaled_viewpoint(source, factor), target),
        described=result.described and (scaled_scan(result.described[0], factor), result.described[1]),
        files=(None, result.files[1]),
    )


def scaled_scan(description: Description, factor: float) -> Description:
    """Return the description of a scan whose coordinates are multiplied by a factor."""
    T_scan_local = description.T_scan_local.copy()
    T_scan_local[:3, 3] *= factor
    return replace(
        description,
        resolution=factor * description.resolution,
        T_scan_local=T_scan_local,
        viewpoint=_scaled_viewpoint(description.viewpoint, factor),
    )


def _scaled_viewpoint(viewpoint: Viewpoint | None, factor: float) -> Viewpoint | None:
    return None if viewpoint is None else replace(viewpoint, position=factor * viewpoint.position)
