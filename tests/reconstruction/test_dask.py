"""Reconstruction on a Dask cluster."""

import os
import pickle
import shutil
import signal

import numpy as np
import pytest
from scipy.spatial.transform import Rotation

from wsdesc import write_points
from wsdesc.core.errors import InputError
from wsdesc.core.executors import Dask
from wsdesc.datasets.synthetic import room_scans
from wsdesc.reconstruction.pipeline import reconstruct

distributed = pytest.importorskip("distributed")

pytestmark = pytest.mark.slow

FAST = {"keypoints": 400, "more_keypoints": 0}


@pytest.fixture(scope="module")
def cluster():
    """A scheduler and two worker processes, which are restarted when they die."""
    threads = {"OMP_NUM_THREADS": "1", "NUMBA_NUM_THREADS": "1"}
    with distributed.LocalCluster(
        n_workers=2, threads_per_worker=1, dashboard_address=None, env=threads, silence_logs=50
    ) as cluster:
        yield cluster


@pytest.fixture(scope="module")
def scans(tmp_path_factory):
    folder = tmp_path_factory.mktemp("scans")
    for number, fragment in enumerate(room_scans(3, 3, resolution=0.04)):
        R = Rotation.random(random_state=number).as_matrix()
        write_points(folder / f"{number}.ply", fragment.points @ R.T)
    return sorted(folder.glob("*.ply"))


class Killing(Dask):
    """Kill a worker after the first pair, while both workers register the other two."""

    killed = None

    def run(self, task, jobs):
        self.sent = jobs
        for number, result in super().run(task, jobs):
            if task.__name__ == "register_pair" and self.killed is None:
                self.killed = next(iter(self.client.run(os.getpid).values()))
                os.kill(self.killed, signal.SIGKILL)
            yield number, result


def test_killed_worker_does_not_change_the_result(cluster, scans, tmp_path):
    alone = reconstruct(scans, tmp_path / "alone", **FAST)
    assert alone.components == [[path.name for path in scans]]
    # The cache has all descriptions: only pairs are registered on the cluster.
    shutil.copytree(tmp_path / "alone" / "cache", tmp_path / "together" / "cache")
    executor = Killing(cluster.scheduler_address)
    together = reconstruct(scans, tmp_path / "together", executor=executor, **FAST)
    executor.close()
    assert executor.killed is not None
    assert len(together.edges) == 3
    assert [edge.to_dict() for edge in together.edges] == [edge.to_dict() for edge in alone.edges]
    for name, T in alone.T_world_scan.items():
        np.testing.assert_array_equal(together.T_world_scan[name], T)
    assert all(len(pickle.dumps(job)) < 3000 for job in executor.sent)  # jobs hold paths, not points


def test_benchmarks_run_on_the_cluster(cluster, scans, tmp_path):
    from wsdesc.evaluation.methods import from_recipe
    from wsdesc.evaluation.options import PairwiseOptions
    from wsdesc.evaluation.pairwise import evaluate_pairs
    from wsdesc.evaluation.scenes import EvaluationScene, PairTruth

    pairs = [PairTruth(0, 1, np.eye(4)), PairTruth(0, 2, np.eye(4)), PairTruth(1, 2, np.eye(4))]
    scene = EvaluationScene("room", dict(enumerate(scans)), pairs)
    method, options = (
        from_recipe({"model": "untrained-fast", "device": "cpu"}),
        PairwiseOptions(keypoints=(50,)),
    )
    alone = evaluate_pairs("pairs", [scene], [method], options, tmp_path / "alone")
    executor = Dask(cluster.scheduler_address)
    on_cluster = evaluate_pairs("pairs", [scene], [method], options, tmp_path / "there", executor=executor)
    executor.close()
    for record in (*alone["untrained-fast"], *on_cluster["untrained-fast"]):
        assert record.pop("seconds") > 0  # the only difference
    assert on_cluster == alone
    assert len(on_cluster["untrained-fast"]) == 3


def test_missing_scheduler_is_reported():
    with pytest.raises(InputError, match=r"no Dask scheduler answers at tcp://127\.0\.0\.1:9"):
        Dask("tcp://127.0.0.1:9")
