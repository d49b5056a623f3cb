"""`agreement` of many poses at once on a GPU: the same sums, one row a pose."""

from __future__ import annotations

import torch
from torch import Tensor

from wsdesc.alignment.surface_cuda import DeviceSurface, laid, on_device
from wsdesc.alignment.verify import ALIGNED, CROSSED, FACING, FLAT, MISS, Agreement, Side, agreement_of
from wsdesc.core.geometry import Floats


def agreements(source: DeviceSurface, target: DeviceSurface, poses: Floats, reach: float) -> list[Agreement]:
    """What `agreement` says about each of the poses T_target_source (H, 4, 4)."""
    if len(poses) == 0:
        return []
    T_target_source, T_source_target = on_device(poses, source)
    forth = _side(source, target, T_target_source, reach)
    back = _side(target, source, T_source_target, reach)
    rows = torch.stack([forth, back], dim=1).tolist()  # H times two sides
    return [agreement_of(Side(*there), Side(*here), reach) for there, here in rows]


def _side(asking: DeviceSurface, other: DeviceSurface, T_other_asking: Tensor, reach: float) -> Tensor:
    """(H, fields of `Side`): the sample of `asking`, laid onto `other`, and who is nearest to it there."""
    here = laid(asking.asking, T_other_asking)  # (H, S, 6)
    partner = asking.partners_in(other, here[..., :3])  # (H, S)
    across, gap = other.normals[partner], here[..., :3] - other.points[partner]
    distance = gap.square().sum(-1).sqrt()
    near, on = distance < MISS * reach, distance <= reach
    offset = torch.where(across.any(-1), (gap * across).sum(-1).abs(), distance)
    cosine = (here[..., 3:] * across).sum(-1).abs()  # 0 where either has no normal

    bend, bend_there = asking.bend[asking.sample], other.bend[partner]
    known = on & asking.normals[asking.sample].any(-1) & across.any(-1)
    low, high = torch.minimum(bend, bend_there), torch.maximum(bend, bend_there)
    flat, bent = known & (high < FLAT), on & (high >= FLAT)
    level = asking.rarity * (flat & (cosine > ALIGNED))
    hovering = near & ~on & (offset > FACING * distance)
    sums = {
        "asked": torch.ones_like(on),
        "on": on,
        "informative": asking.rarity * on,
        "aligned": known & (cosine > ALIGNED),
        "flat": flat,
        "crossed": flat & (cosine < CROSSED),
        "level": level,
        "level_offset": offset.sqrt() * level,
        "hovering": hovering,
        "bend_min": low * known,
        "bend_max": high * known,
        "detail_min": low * bent,
        "detail_max": high * bent + (hovering & (bend >= FLAT)),
        "offset_squared": offset.square() * on,
        "distance_squared": distance.square() * on,
    }
    return torch.stack([sums[name].to(distance.dtype) for name in Side._fields]).sum(-1).T
