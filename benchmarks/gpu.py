"""Compare the triton kernels with plain torch, values and gradients, then time them. Needs a CUDA device.

    python -m benchmarks.gpu [SCAN]        a scan of 10–20 thousand points; default: a synthetic room
    python -m benchmarks.gpu --check       only the comparison
    python -m benchmarks.gpu SCAN --times  only the times of kernels and network

Prints each comparison with its limit; then times of the kernels, of describing 5 000 keypoints in each
precision (with the distance of the descriptors from float32) and of a training step. The exit code is 1 if a
comparison exceeds its limit.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

import torch
from torch import Tensor

from benchmarks.common import (
    make_parser,
    median_ms,
    print_machine,
    print_table,
    read_scan_or_room,
    run_command,
)
from wsdesc import RigidityLoss, WSDesc, local_frames, voxelize
from wsdesc.cloud.neighbours import NeighbourGrid
from wsdesc.cloud.sampling import farthest_points
from wsdesc.core.errors import InputError

Row = tuple[str, str]


def check(name: str, error: float, allowed: float, rows: list[Row]) -> bool:
    """Add the row of one comparison; NaN fails."""
    good = error <= allowed
    rows.append((name, f"{error:.2e} ≤ {allowed:.0e}  {'ok' if good else 'FAILED'}"))
    return good


def make_clouds(scan: Tensor) -> dict[str, Tensor]:
    """Make ordinary and difficult inputs, with new random numbers in each run."""
    ball = torch.randn(1500, 3, device="cuda")
    return {
        "scan": scan,
        "noise": torch.rand(2000, 3, device="cuda") * 2,
        "two clusters": torch.cat([ball * 0.1, ball * 0.1 + 50]),
        "duplicates": torch.randint(0, 8, (3000, 3), device="cuda") * 0.11,
        "five points": torch.rand(5, 3, device="cuda"),
    }


def check_kernels(scan: Tensor) -> bool:
    """Compare all kernels on all inputs and print the rows."""
    rows: list[Row] = []
    good = True
    for name, points in make_clouds(scan).items():
        keypoints = points[torch.randperm(len(points), device="cuda")[:24]]
        fast = local_frames(points, keypoints, backend="triton")
        plain = local_frames(points, keypoints, backend="reference")
        reliable = plain.reliable & fast.reliable
        gaps = (fast.frames - plain.frames)[reliable].abs()
        error = gaps.max() if reliable.any() else torch.zeros(())
        good &= check(f"frames, {name}", float(error), 1e-4, rows)
        good &= check(f"  reliable flags, {name}", float((fast.reliable != plain.reliable).sum()), 1, rows)
        for side in (0.35, 1.1, 2.5):
            good &= check_voxels(f"{name}, support {side}", points, keypoints, plain.frames, side, rows)
        chosen = farthest_points(points, 64), farthest_points(points.cpu(), 64)
        spread = [torch.cdist(points[c.to(points.device)], points).amin(0).max() for c in chosen]
        good &= check(f"farthest points, {name}", float((spread[0] - spread[1]).abs()), 1e-5, rows)
        on_gpu = NeighbourGrid.of(points).within(keypoints, 0.3)
        on_cpu = NeighbourGrid.of(points.cpu()).within(keypoints.cpu(), 0.3)
        differ = float((on_gpu.starts.cpu() != on_cpu.starts).sum())
        if differ == 0:
            differ = float((on_gpu.indices.cpu() != on_cpu.indices).sum())
        good &= check(f"neighbours, {name}", differ, 0, rows)
    print_table(rows)
    return good


def check_voxels(
    name: str, points: Tensor, keypoints: Tensor, frames: Tensor, side: float, rows: list[Row]
) -> bool:
    """Compare values, gradients with respect to support and points, and two runs bit by bit."""
    upstream = torch.randn(len(keypoints), 16, 16, 16, device="cuda")
    results = []
    for backend in ("reference", "triton", "triton"):
        cloud = points.clone().requires_grad_()
        support = torch.full((len(keypoints),), side, device="cuda", requires_grad=True)
        values = voxelize(cloud, keypoints, frames, support, backend=backend)
        (values * upstream).sum().backward()
        results.append((values.detach(), support.grad, cloud.grad))
    plain, fast, again = results
    difference = (plain[0] - fast[0]).abs()
    good = check(f"values, {name}", float(difference.max()), 2e-3, rows)
    good &= check("  share of voxels beyond 1e-5", float((difference > 1e-5).float().mean()), 1e-3, rows)
    for what, a, b in (("support", plain[1], fast[1]), ("points", plain[2], fast[2])):
        relative = float((a - b).norm() / a.norm().clamp(min=1e-6))
        good &= check(f"  gradient in {what}, relative", relative, 1e-2, rows)
    identical = all(torch.equal(a, b) for a, b in zip(fast, again, strict=True))
    return check("  bits that differ in a second run", float(not identical), 0, rows) and good


def spread_out(scan: Tensor, count: int) -> Tensor:
    """Arrange copies of the scan side by side: `count` points of the same local density."""
    size = (scan.amax(0) - scan.amin(0)).amax() + 3
    copies = -(-count // len(scan))
    edge = round(copies ** (1 / 3) + 0.5)
    offsets = torch.cartesian_prod(*[torch.arange(edge, device="cuda")] * 3)[:copies] * size
    return (scan + offsets[:, None]).view(-1, 3)[:count]


def time_kernels(scan: Tensor) -> list[Row]:
    """Time the kernels one by one."""
    rows: list[Row] = [("points", f"{len(scan)}")]
    generator = torch.Generator().manual_seed(0)
    keypoints = scan[torch.randperm(len(scan), generator=generator)[:5000].cuda()]
    grid = NeighbourGrid.of(scan)
    frames = local_frames(grid, keypoints).frames
    support = torch.tensor(1.1, device="cuda", requires_grad=True)

    def forward_and_gradient() -> None:
        voxelize(grid, keypoints[:512], frames[:512], support).sum().backward()

    def with_points() -> None:
        cloud = scan.clone().requires_grad_()
        voxelize(cloud, keypoints[:512], frames[:512], support).sum().backward()

    with torch.no_grad():
        rows.append(("neighbour grid", f"{median_ms(lambda: NeighbourGrid.of(scan)):.2f} ms"))
        rows.append(("frames, K = 5000", f"{median_ms(lambda: local_frames(grid, keypoints)):.2f} ms"))
        rows.append(("farthest points, 512", f"{median_ms(lambda: farthest_points(scan, 512)):.2f} ms"))
        forward = median_ms(lambda: voxelize(grid, keypoints[:512], frames[:512], 1.1))
        rows.append(("voxels, K = 512", f"{forward:.2f} ms"))
        rows.append(
            ("voxels, K = 5000", f"{median_ms(lambda: voxelize(grid, keypoints, frames, 1.1)):.2f} ms")
        )
    rows.append(("voxels + support gradient, K = 512", f"{median_ms(forward_and_gradient):.2f} ms"))
    rows.append(("voxels + support and points gradient, K = 512", f"{median_ms(with_points, 5):.2f} ms"))
    return rows


def time_network(scan: Tensor) -> list[Row]:
    """Time description in each precision, and measure the distance of the descriptors from float32."""
    rows: list[Row] = []
    generator = torch.Generator().manual_seed(0)
    keypoints = scan[torch.randperm(len(scan), generator=generator)[:5000].cuda()]
    million = spread_out(scan, 1_000_000)
    million_keypoints = million[torch.randperm(len(million), generator=generator)[:5000].cuda()]
    exact = None
    for name in ("float32", "tf32", "bf16", "fp16"):
        torch.manual_seed(0)
        model = WSDesc(support_start=1.1).cuda().eval().accelerate(name, compile=False)
        with torch.inference_mode():
            described = model(scan, keypoints)
            exact = described if exact is None else exact
            moved = (described - exact).norm(dim=1)
            share = ", ".join(f"{float(moved.quantile(q)):.1e}" for q in (0.5, 0.99))
            voxels = torch.rand(1024, 16, 16, 16, device="cuda")
            alone = median_ms(lambda m=model, v=voxels: m.describe(v), 10) * 5000 / 1024
            whole = median_ms(lambda m=model: m(scan, keypoints), 10)
            torch.cuda.reset_peak_memory_stats()
            large = median_ms(lambda m=model: m(million, million_keypoints), 5, 2)
            peak = torch.cuda.max_memory_allocated() / 2**30
        times = f"network {alone:.1f}, all {whole:.1f}, in 1 M points {large:.1f} ms ({large / whole:.2f}×)"
        rows.append(
            (
                f"K = 5000, {name}",
                f"{times}, peak {peak:.1f} GiB; distance from float32 (median, 99 %) {share}",
            )
        )
    return rows


def time_training(scan: Tensor) -> list[Row]:
    """Time one step on two scans of 512 keypoints: frames, voxels, network, loss, backward."""
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


def main(arguments: argparse.Namespace) -> bool:
    if not torch.cuda.is_available():
        raise InputError("no CUDA device was found")
    scan = read_scan_or_room(arguments.scan).cuda()
    passed = arguments.times or check_kernels(scan)
    print_machine()
    if not arguments.check:
        print_table(time_kernels(scan))
        print_table(time_network(scan))
    if arguments.times:
        return True
    if not arguments.check:
        print_table(time_training(scan))
    print("all comparisons are within their limits" if passed else "SOME COMPARISONS EXCEED THEIR LIMITS")
    return passed


def parser() -> argparse.ArgumentParser:
    parser = make_parser("gpu", __doc__)
    parser.add_argument("scan", type=Path, nargs="?", help="file of a scan (default: a synthetic room)")
    parser.add_argument("--check", action="store_true", help="only the comparison")
    parser.add_argument("--times", action="store_true", help="only the times of kernels and network")
    return parser


if __name__ == "__main__":
    sys.exit(run_command(parser(), main))
