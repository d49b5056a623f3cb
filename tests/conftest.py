"""Shared fixtures: real scans where they are present, a synthetic pair, the number of threads."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path

import pytest
import torch
from torch import Tensor

from wsdesc.cloud.files import read_points
from wsdesc.cloud.sampling import voxel_downsample
from wsdesc.datasets.synthetic import RoomPair, room_pair

_BESIDE = Path(__file__).resolve().parents[2] / "shared" / "data"  # beside the repository


def pytest_configure() -> None:
    """Divide the cores among parallel test processes: waiting threads of torch would take them otherwise."""
    workers = int(os.environ.get("PYTEST_XDIST_WORKER_COUNT", "1"))
    if workers > 1:
        threads = max(1, (os.cpu_count() or 1) // workers)
        torch.set_num_threads(threads)
        for name in ("OMP_NUM_THREADS", "MKL_NUM_THREADS"):  # for the processes that tests start
            os.environ[name] = str(threads)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Skip tests marked `gpu` where there is no CUDA device."""
    if torch.cuda.is_available():
        return
    for item in items:
        if item.get_closest_marker("gpu"):
            item.add_marker(pytest.mark.skip(reason="needs a CUDA device"))


@pytest.fixture(scope="session")
def data_folder() -> Path:
    """The folder of real scans: WSDESC_DATA, else `../shared/data` as seen from the repository."""
    folder = Path(os.environ.get("WSDESC_DATA") or _BESIDE)
    if not (folder / "indoor").is_dir():
        pytest.skip("no real scans: set WSDESC_DATA to a folder that holds indoor/")
    return folder


@pytest.fixture(scope="session")
def read_scan(data_folder: Path) -> Callable[[str], Tensor]:
    """Read a scan by its name in the data folder: (N, 3) float32, one point in each 2.5 cm."""

    @cache
    def read(name: str) -> Tensor:
        path = data_folder / name
        if not path.is_file():
            pytest.skip(f"the data folder has no {name}")
        return voxel_downsample(torch.from_numpy(read_points(path)), 0.025).float()

    return read


@pytest.fixture(scope="session")
def kitchen(read_scan: Callable[[str], Tensor]) -> Tensor:
    """One fragment of a real kitchen, about 12 500 points."""
    return read_scan("indoor/test/kitchen/cloud_bin_0.ply")


@pytest.fixture(scope="session")
def desk(read_scan: Callable[[str], Tensor]) -> Tensor:
    """One fragment of a real desk, from another camera, about 8 500 points."""
    return read_scan("indoor/train/tum_fr1_desk/cloud_bin_0.ply")


@pytest.fixture(scope="session")
def room() -> RoomPair:
    """Two overlapping fragments of a synthetic room, with their relative pose."""
    return room_pair(0)


@pytest.fixture
def set_threads() -> Iterator[Callable[[int], None]]:
    """Choose how many threads torch, and with it the kernels, may use; afterwards it is as before."""
    before = torch.get_num_threads()
    yield torch.set_num_threads
    torch.set_num_threads(before)


@pytest.fixture
def ordinary_user() -> Iterator[None]:
    """Root may read and write everywhere: become another user for a test."""
    if not hasattr(os, "geteuid") or os.geteuid() != 0:
        yield
        return
    os.seteuid(65534)
    try:
        yield
    finally:
        os.seteuid(0)
