"""`agreement` of many poses at once on a GPU: the same sums, one row a pose."""

from __future__ import annotations

import torch
from torch import Tensor

from wsdesc.align.surface import Floats
from wsdesc.align.surface_cuda import Contacts, DeviceSurface, contacts, inverses
from wsdesc.align.verify import ALIGNED, CROSSED, FACING, FLAT, MISS, Agreement, Side, agreement_of


def agreements(source: DeviceSurface, target: DeviceSurface, poses: Floats, reach: float) -> list[Agreement]:
    """What `agreement` says about each of the poses T_target_source (H, 4, 4)."""
    if len(poses) == 0:
        return []
    T = torch.from_numpy(poses).to(source.points.device)
    forth = _side(contacts(source, target, T, MISS * reach), source, target, reach)
    back = _side(contacts(target, source, inverses(T), MISS * reach), target, source, reach)
    rows = torch.stack([forth, back], dim=1).tolist()  # H times two sides
    return [agreement_of(Side(*there), Side(*here), reach) for there, here in rows]


def _side(c: Contacts, asking: DeviceSurface, other: DeviceSurface, reach: float) -> Tensor:
    """(H, fields of `Side`)."""
    on = c.distance <= reach  # (H, S)
    bend, bend_there = asking.bend[asking.sample], other.bend[c.partner]
    known = on & asking.normals[asking.sample].any(-1) & other.normals[c.partner].any(-1)
    low, high = torch.minimum(bend, bend_there), torch.maximum(bend, bend_there)
    flat = known & (high < FLAT)
    hovering = c.distance.isfinite() & ~on & (c.offset > FACING * c.distance)
    bent = on & (high >= FLAT)
    sums = {
        "asked": torch.ones_like(on),
        "on": on,
        "informative": asking.rarity * on,
        "aligned": known & (c.cosine > ALIGNED),
        "flat": flat,
        "crossed": flat & (c.cosine < CROSSED),
        "hovering": hovering,
        "bend_min": low * known,
        "bend_max": high * known,
        "detail_min": low * bent,
        "detail_max": high * bent + (hovering & (bend >= FLAT)),
        "offset_squared": c.offset.where(on, 0.0).square(),
        "distance_squared": c.distance.where(on, 0.0).square(),
    }
    return torch.stack([sums[name].to(c.distance.dtype) for name in Side._fields]).sum(-1).T
