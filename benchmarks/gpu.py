"""Time the triton kernels, the network and a training step. Needs a CUDA device.

    python -m benchmarks.gpu [SCAN]        a scan of 10–20 thousand points; default: a synthetic room

Prints the times of the kernels, of describing 5 000 keypoints in each precision (with the distance of the
descriptors from float32) and of a training step. `pytest -m gpu` compares the kernels with plain torch.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

import torch
from torch import Tensor

from benchmarks.common import make_parser, print_machine, print_table, read_scan_or_room, run_command
from wsdesc import RigidityLoss, WSDesc, local_frames, voxelize
from wsdesc.cloud.neighbours import NeighbourGrid
from wsdesc.cloud.sampling import farthest_points
from wsdesc.core.errors import InputError
from wsdesc.evaluation.stopwatch import median_ms

Row = tuple[str, str]


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


def main(arguments: argparse.Namespace) -> None:
    if not torch.cuda.is_available():
        raise InputError("no CUDA device was found")
    scan = read_scan_or_room(arguments.scan).cuda()
    print_machine()
    for measure in (time_kernels, time_network, time_training):
        print_table(measure(scan))


def parser() -> argparse.ArgumentParser:
    parser = make_parser("gpu", __doc__)
    parser.add_argument("scan", type=Path, nargs="?", help="file of a scan (default: a synthetic room)")
    return parser


if __name__ == "__main__":
    sys.exit(run_command(parser(), main))
