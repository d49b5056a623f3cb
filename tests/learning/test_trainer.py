"""One training step: what it depends on, and that CUDA computes the same as the CPU."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from tiny_training import tiny
from wsdesc import WSDesc
from wsdesc.core.rng import generator_of, random_rotation
from wsdesc.descriptor.model import DescriptorInput
from wsdesc.learning.match_trainer import MatchTrainer, matches_by_pose
from wsdesc.learning.prefetch import Prefetcher
from wsdesc.learning.run import run_training
from wsdesc.learning.sources import ScanPairs
from wsdesc.learning.trainer import PreparedPair, Trainer


def gradients(trainer: Trainer) -> dict[str, torch.Tensor]:
    """Return all gradients; on CUDA the biases before a normalization have none."""
    parameters = trainer.model.named_parameters()
    return {name: (torch.zeros_like(p) if p.grad is None else p.grad).float().cpu() for name, p in parameters}


def assert_close(actual: dict[str, torch.Tensor], expected: dict[str, torch.Tensor], share: float) -> None:
    """Compare gradients up to a share of the largest entry of each.

    The gradients of biases before instance normalization are zero up to rounding, hence the second term.
    """
    largest = max(float(gradient.abs().max()) for gradient in expected.values())
    for name, gradient in expected.items():
        tolerance = share * float(gradient.abs().max()) + 1e-4 * largest
        assert float((actual[name] - gradient).abs().max()) <= tolerance, name


def test_orthogonality_and_support_gradient_do_not_depend_on_the_position_of_the_scans(source):
    """A shift of a scan changes neither descriptors nor the linear part of the affine maps."""
    p, q = source.pair(0)
    shift = torch.tensor([1.0, -2.0, 0.5])
    rows = []
    for clouds in ((p, q), (p + shift, q - shift)):
        trainer = Trainer(tiny())
        rows.append(trainer.gradients([trainer.prepare(*clouds, generator_of(0))])[0])
    assert rows[1][1] == pytest.approx(float(rows[0][1]), rel=2e-2)


def test_descriptors_do_not_change_with_a_rotation_of_the_scan(source):
    cloud = source.clouds[0]
    model = Trainer(tiny()).model
    R = random_rotation(generator_of(1))
    with torch.no_grad():
        before, after = model(cloud, cloud[:60]), model(cloud @ R.T, cloud[:60] @ R.T)
    assert float((before - after).norm(dim=1).median()) < 1e-3


def test_preparation_depends_only_on_the_generator(source):
    trainer = Trainer(tiny(rotate=True))
    a, b, c = (trainer.prepare(*source.pair(0), generator_of(seed)) for seed in (7, 7, 8))
    assert torch.equal(a.p.keypoints, b.p.keypoints)
    assert not torch.equal(a.p.keypoints, c.p.keypoints)


def test_learning_rates_fall_during_the_cooldown():
    trainer = Trainer(tiny(steps=100, cooldown=0.5, learning_rate=1e-3))
    rates = []
    for step in (0, 49, 75, 99):
        trainer.set_learning_rates(step)
        rates.append(trainer.optimizers["network"].param_groups[0]["lr"])
    assert rates == pytest.approx([1e-3, 1e-3, 5e-4, 2e-5])


def test_initial_weights_depend_only_on_the_seed():
    torch.manual_seed(99)
    first = Trainer(tiny(seed=4)).model
    torch.manual_seed(1)
    before = torch.random.get_rng_state()
    again, other = Trainer(tiny(seed=4)).model, Trainer(tiny(seed=5)).model
    assert torch.equal(torch.random.get_rng_state(), before)
    weights = [model.network.head.weight for model in (first, again, other)]
    assert torch.equal(weights[0], weights[1])
    assert not torch.equal(weights[0], weights[2])


def _on_cuda(pair: PreparedPair, trainer: Trainer) -> PreparedPair:
    """Move keypoints and frames to the GPU, so that both devices use the same ones."""
    moved = []
    for prepared in pair:
        grid = trainer.grid(_original_points(prepared), generator_of(0))
        on_cuda = trainer.model.prepare_grid(grid, prepared.keypoints.cuda())
        moved.append(on_cuda._replace(frames=prepared.frames.cuda()))
    return PreparedPair(*moved)


def _original_points(prepared: DescriptorInput) -> torch.Tensor:
    points = torch.empty_like(prepared.grid.points)
    points[prepared.grid.order] = prepared.grid.points
    return points


@pytest.mark.gpu
@pytest.mark.parametrize("kind", ["rigidity", "infonce"])
def test_cuda_step_equals_cpu_step(source, kind):
    """In float32 without compilation: loss, its terms and all gradients."""
    torch.backends.cudnn.allow_tf32 = False
    options = tiny(precision="float32", compile=False, oracle=None if kind == "rigidity" else kind)
    trainer_class = Trainer if kind == "rigidity" else MatchTrainer
    cpu, cuda = trainer_class(options, "cpu"), trainer_class(options, "cuda")
    clouds = source.pair(0)
    if kind == "rigidity":
        pair = cpu.prepare(*clouds, generator_of(0))
    else:
        cloud = clouds[0]
        matches = matches_by_pose(cloud, cloud, torch.eye(4).double().numpy())
        pair = cpu.prepare(cloud, cloud, matches, generator_of(0))
    rows = [cpu.gradients([pair]), cuda.gradients([_on_cuda(pair, cuda)]).cpu()]
    torch.testing.assert_close(rows[1], rows[0], rtol=2e-3, atol=1e-4)
    assert_close(gradients(cuda), gradients(cpu), share=2e-2)


@pytest.mark.gpu
def test_bf16_and_compiled_steps_run(source):
    results = {}
    for precision, compiled in (("float32", False), ("bf16", False), ("bf16", True)):
        trainer = Trainer(tiny(precision=precision, compile=compiled), "cuda")
        prefetcher = Prefetcher(source, trainer)
        try:
            results[precision, compiled] = trainer.step(prefetcher.take(0))
        finally:
            prefetcher.close()
    expected = results["float32", False]
    for result in results.values():  # lower precision changes single matches of an untrained network
        assert not result.skipped
        assert result.loss == pytest.approx(expected.loss, rel=0.5)
        assert result.gradient_norm > 0


@pytest.mark.gpu
def test_compiled_bf16_training_skips_no_step(source, tmp_path):
    states = []
    run = run_training(tiny(steps=20), source, tmp_path, device="cuda", on_step=states.append)
    assert run.finished
    assert states[-1].skipped == 0
    assert states[-1].result.support != pytest.approx(1.2, abs=1e-6)


@pytest.mark.gpu
def test_resumed_cuda_run_gives_the_weights_of_an_uninterrupted_one(source, tmp_path):
    """Up to the difference of two uninterrupted runs: atomic additions on the GPU may round differently."""
    options = tiny(steps=6, precision="float32", compile=False)
    whole, again = (run_training(options, source, tmp_path / name, device="cuda") for name in "ab")
    assert not run_training(options, source, tmp_path / "parts", device="cuda", stop_after=0).finished
    parts = run_training(options, source, tmp_path / "parts", device="cuda", resume=True)
    expected, repeated, resumed = (_kernels(run.weights) for run in (whole, again, parts))
    tolerance = 3 * float((expected - repeated).norm()) + 1e-6 * float(expected.norm())
    assert float((expected - resumed).norm()) <= tolerance


def _kernels(weights: Path) -> torch.Tensor:
    """Return all weights of the network except biases, as a vector."""
    parameters = WSDesc.from_pretrained(weights).network.parameters()
    return torch.cat([p.detach().flatten() for p in parameters if p.ndim > 1])


@pytest.mark.gpu
def test_prefetched_pairs_equal_pairs_on_demand(source):
    trainer = Trainer(tiny(), "cuda")
    prefetcher = Prefetcher(source, trainer)
    try:
        for step in range(6):
            (ahead,) = prefetcher.take(step)
            on_demand = trainer.prepare(*source.pair(step), generator_of(trainer.options.seed, 0, step))
            for a, b in zip(ahead, on_demand, strict=True):
                assert torch.equal(a.keypoints, b.keypoints)
                different = (a.frames - b.frames).abs().amax(dim=(1, 2)) > 1e-3
                assert float(different.float().mean()) < 0.05
    finally:
        prefetcher.close()


def test_source_of_matches_is_refused_by_the_weakly_supervised_trainer(source, tmp_path):
    """`Trainer.prepare` has no argument for matches."""

    class MatchedSource(ScanPairs):
        def pair(self, index):
            return (*super().pair(index), torch.zeros(64, 2, dtype=torch.int64))

    with pytest.raises(TypeError):
        run_training(tiny(steps=1), MatchedSource(source.clouds, source.pairs, 0), tmp_path)
