"""Terms of a score that both backends share: weights, and the shape of the Fourier transforms."""

from __future__ import annotations

from torch import Tensor

from wsdesc.alignment.structure.voxels import Voxels

_VIOLATION = 30.0  # weight of a voxel in free space, relative to one where surfaces coincide
_MIN_SHARE = 0.02  # of the surface: rarer directions of normals get no larger weight


def weights(p: Voxels, q: Voxels) -> tuple[Tensor, Tensor, Tensor]:
    """Return the surface of p and of q per direction of normals (3,), and the weight of a violation.

    Dividing by the root of both gives each direction the same influence.
    """
    n_p, n_q = p.surface.sum((1, 2, 3)), q.surface.sum((1, 2, 3))
    along_p, along_q = n_p.clamp(min=_MIN_SHARE * n_p.sum()), n_q.clamp(min=_MIN_SHARE * n_q.sum())
    return along_p, along_q, _VIOLATION * (n_p.sum() * n_q.sum()).rsqrt()


def spectrum_shape(p: Voxels, q: Voxels) -> list[int]:
    """Return a shape (3,) that holds all shifts, with lengths whose transform is fast on the device."""
    fast = _few_lengths if p.free.is_cuda else _fast_length
    return [fast(a + b) for a, b in zip(p.free.shape, q.free.shape, strict=True)]


def _few_lengths(length: int) -> int:
    """Return the next 2ⁿ or 3 · 2ⁿ: a GPU plans the transform of each new shape, which takes milliseconds."""
    power = 1 << max(length - 1, 1).bit_length()
    return 3 * power // 4 if 3 * power // 4 >= length else power


def _fast_length(length: int) -> int:
    """Return the next length with no prime factor above 5: their Fourier transforms are fast."""
    while True:
        rest = length
        for factor in (2, 3, 5):
            while rest % factor == 0:
                rest //= factor
        if rest == 1:
            return length
        length += 1
