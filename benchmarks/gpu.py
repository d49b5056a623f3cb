"""Check the triton kernels against plain torch, values and gradients, then time them.

    python -m benchmarks.gpu [scan]        a scan of 10–20 thousand points; default: a synthetic room
    python -m benchmarks.gpu --check       the checks alone

Exits with 1 if a check fails. Needs a CUDA device.
"""

from __future__ import annotations

import argparse
import sys

import torch
from torch import Tensor

from benchmarks.common import median_ms, print_machine, print_table, scan_or_room
from wsdesc import RigidityLoss, WSDesc, local_frames, voxelize
from wsdesc.cloud.neighbours import NeighbourGrid
from wsdesc.cloud.sampling import farthest_points

Row = tuple[str, str]


def check(name: str, error: float, allowed: float, rows: list[Row]) -> bool:
    """Record one comparison; NaN fails."""
    good = error <= allowed
    rows.append((name, f"{error:.2e} ≤ {allowed:.0e}  {'ok' if good else 'FAILED'}"))
    return good


def clouds(scan: Tensor) -> dict[str, Tensor]:
    """Real and hostile inputs, fresh random numbers at each run."""
    ball = torch.randn(1500, 3, device="cuda")
    return {
        "scan": scan,
        "noise": torch.rand(2000, 3, device="cuda") * 2,
        "two clusters": torch.cat([ball * 0.1, ball * 0.1 + 50]),
        "duplicates": torch.randint(0, 8, (3000, 3), device="cuda") * 0.11,
        "five points": torch.rand(5, 3, device="cuda"),
    }


def check_kernels(scan: Tensor) -> bool:
    rows: list[Row] = []
    good = True
    for name, points in clouds(scan).items():
        keys = points[torch.randperm(len(points), device="cuda")[:24]]
        fast = local_frames(points, keys, backend="triton")
        plain = local_frames(points, keys, backend="reference")
        sure = plain.reliable & fast.reliable
        error = (fast.frames - plain.frames)[sure].abs().max() if sure.any() else torch.zeros(())
        good &= check(f"frames, {name}", float(error), 1e-4, rows)
        good &= check(f"  reliable flags, {name}", float((fast.reliable != plain.reliable).sum()), 1, rows)
        for side in (0.35, 1.1, 2.5):
            good &= check_voxels(f"{name}, support {side}", points, keys, plain.frames, side, rows)
        chosen = farthest_points(points, 64), farthest_points(points.cpu(), 64)
        spread = [torch.cdist(points[c.to(points.device)], points).amin(0).max() for c in chosen]
        good &= check(f"farthest points, {name}", float((spread[0] - spread[1]).abs()), 1e-5, rows)
        here = NeighbourGrid.of(points).within(keys, 0.3)
        there = NeighbourGrid.of(points.cpu()).within(keys.cpu(), 0.3)
        differ = float((here.starts.cpu() != there.starts).sum())
        if differ == 0:
            differ = float((here.indices.cpu() != there.indices).sum())
        good &= check(f"neighbours, {name}", differ, 0, rows)
    print_table(rows)
    return good


def check_voxels(name: str, points: Tensor, keys: Tensor, axes: Tensor, side: float, rows: list[Row]) -> bool:
    """Values; gradients in support and points from a random upstream; the same bits twice."""
    upstream = torch.randn(len(keys), 16, 16, 16, device="cuda")
    results = []
    for backend in ("reference", "triton", "triton"):
        cloud = points.clone().requires_grad_()
        support = torch.full((len(keys),), side, device="cuda", requires_grad=True)
        values = voxelize(cloud, keys, axes, support, backend=backend)
        (values * upstream).sum().backward()
        results.append((values.detach(), support.grad, cloud.grad))
    plain, fast, again = results
    difference = (plain[0] - fast[0]).abs()
    good = check(f"values, {name}", float(difference.max()), 2e-3, rows)
    good &= check("  share of voxels beyond 1e-5", float((difference > 1e-5).float().mean()), 1e-3, rows)
    for what, a, b in (("support", plain[1], fast[1]), ("points", plain[2], fast[2])):
        relative = float((a - b).norm() / a.norm().clamp(min=1e-6))
        good &= check(f"  gradient in {what}, relative", relative, 1e-2, rows)
    same = all(torch.equal(a, b) for a, b in zip(fast, again, strict=True))
    return check("  bits that differ in a second run", float(not same), 0, rows) and good


def spread_out(scan: Tensor, count: int) -> Tensor:
    """`count` points of the same local density: copies of the scan side by side."""
    size = (scan.amax(0) - scan.amin(0)).amax() + 3
    copies = -(-count // len(scan))
    edge = round(copies ** (1 / 3) + 0.5)
    places = torch.cartesian_prod(*[torch.arange(edge, device="cuda")] * 3)[:copies] * size
    return (scan + places[:, None]).view(-1, 3)[:count]


def time_parts(scan: Tensor) -> list[Row]:
    rows: list[Row] = [("points", f"{len(scan)}")]
    generator = torch.Generator().manual_seed(0)
    keys = scan[torch.randperm(len(scan), generator=generator)[:5000].cuda()]
    grid = NeighbourGrid.of(scan)
    axes = local_frames(grid, keys).frames
    support = torch.tensor(1.1, device="cuda", requires_grad=True)

    def forward_and_gradient() -> None:
        voxelize(grid, keys[:512], axes[:512], support).sum().backward()

    def with_points() -> None:
        cloud = scan.clone().requires_grad_()
        voxelize(cloud, keys[:512], axes[:512], support).sum().backward()

    with torch.no_grad():
        rows.append(("neighbour grid", f"{median_ms(lambda: NeighbourGrid.of(scan)):.2f} ms"))
        rows.append(("frames, K = 5000", f"{median_ms(lambda: local_frames(grid, keys)):.2f} ms"))
        rows.append(("farthest points, 512", f"{median_ms(lambda: farthest_points(scan, 512)):.2f} ms"))
        forward = median_ms(lambda: voxelize(grid, keys[:512], axes[:512], 1.1))
        rows.append(("voxels, K = 512", f"{forward:.2f} ms"))
        rows.append(("voxels, K = 5000", f"{median_ms(lambda: voxelize(grid, keys, axes, 1.1)):.2f} ms"))
    rows.append(("voxels + support gradient, K = 512", f"{median_ms(forward_and_gradient):.2f} ms"))
    rows.append(("voxels + support and points gradient, K = 512", f"{median_ms(with_points, 5):.2f} ms"))
    return rows


def time_network(scan: Tensor) -> list[Row]:
    """End to end for each precision, and how far descriptors move from float32."""
    rows: list[Row] = []
    generator = torch.Generator().manual_seed(0)
    keys = scan[torch.randperm(len(scan), generator=generator)[:5000].cuda()]
    million = spread_out(scan, 1_000_000)
    million_keys = million[torch.randperm(len(million), generator=generator)[:5000].cuda()]
    exact = None
    for precision, compiled in (("float32", False), ("tf32", False), ("bf16", False), ("bf16", True)):
        torch.manual_seed(0)
        model = WSDesc(support_start=1.1).cuda().eval().accelerate(precision, compile=compiled)
        name = precision + (" compiled" if compiled else "")
        with torch.inference_mode():
            described = model(scan, keys)
            exact = described if exact is None else exact
            moved = (described - exact).norm(dim=1)
            share = ", ".join(f"{float(moved.quantile(q)):.1e}" for q in (0.5, 0.99))
            voxels = torch.rand(1024, 16, 16, 16, device="cuda")
            alone = median_ms(lambda m=model, v=voxels: m.describe(v), 10) * 5000 / 1024
            whole = median_ms(lambda m=model: m(scan, keys), 10)
            torch.cuda.reset_peak_memory_stats()
            large = median_ms(lambda m=model: m(million, million_keys), 5, 2)
            peak = torch.cuda.max_memory_allocated() / 2**30
        times = f"network {alone:.1f}, all {whole:.1f}, in 1 M points {large:.1f} ms ({large / whole:.2f}×)"
        rows.append((f"K = 5000, {name}", f"{times}, peak {peak:.1f} GiB; moved (median, 99 %) {share}"))
    return rows


def time_training(scan: Tensor) -> list[Row]:
    """One step on two clouds of 512 keypoints: frames, voxels, network, loss, backward."""
    rows: list[Row] = []
    other = scan.flip(0) @ torch.linalg.qr(torch.randn(3, 3, device="cuda"))[0]
    for precision, compiled in (("float32", False), ("tf32", False), ("bf16", True)):
        model = WSDesc(support_start=1.1).cuda().accelerate(precision, compile=compiled)
        loss = RigidityLoss()

        def step(model: WSDesc = model, loss: RigidityLoss = loss) -> None:
            pair = [(c, c[farthest_points(c, 512)]) for c in (scan, other)]
            (p, kp), (q, kq) = pair
            loss(kp, model(p, kp), kq, model(q, kq)).loss.backward()

        name = precision + (" compiled" if compiled else "")
        rows.append((f"training step, 2 × 512, {name}", f"{median_ms(step, 10):.1f} ms"))
    return rows


def main() -> int:
    parser = argparse.ArgumentParser(usage=__doc__)
    parser.add_argument("scan", nargs="?")
    parser.add_argument("--check", action="store_true")
    arguments = parser.parse_args()
    if not torch.cuda.is_available():
        print("no CUDA device here", file=sys.stderr)
        return 2
    scan = scan_or_room(arguments.scan).cuda()
    good = check_kernels(scan)
    print_machine()
    if not arguments.check:
        print_table(time_parts(scan))
        print_table(time_network(scan))
        print_table(time_training(scan))
    print("all checks passed" if good else "SOME CHECKS FAILED")
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
