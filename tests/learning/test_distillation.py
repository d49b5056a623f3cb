"""Distillation: the student approaches its teacher, keeps its support, and resumes."""

from __future__ import annotations

import json

import pytest
import torch
from typer.testing import CliRunner

import wsdesc
from tiny_training import tiny_clouds
from wsdesc import WSDesc, WSDescError, write_points
from wsdesc.cli.app import app
from wsdesc.core.rng import generator_of
from wsdesc.learning.distillation import run_distillation, student_options
from wsdesc.learning.distiller import Distiller
from wsdesc.learning.options import TrainOptions
from wsdesc.learning.prefetch import Prefetcher
from wsdesc.learning.student_pairs import RandomPairs, student_source
from wsdesc.learning.validation import compare_with_teacher


@pytest.fixture(scope="module")
def teacher() -> WSDesc:
    torch.manual_seed(1)
    return WSDesc(width=0.25, resolution=8, support_start=1.1).eval()


@pytest.fixture(scope="module")
def clouds(room):
    return tiny_clouds(room)


def options(teacher, **more):
    changes = {"steps": 40, "keypoints": 32, "distill": {"warmup_steps": 4}, "learning_rate": 5e-3, **more}
    return student_options(teacher, 0.125, **changes)


@pytest.mark.slow
def test_student_approaches_its_teacher(teacher, clouds, tmp_path):
    o = options(teacher, validate_every=40)
    before = Distiller(teacher, o).model
    run = run_distillation(teacher, RandomPairs(clouds, 0), o, tmp_path, held_out=clouds)
    student = WSDesc.from_pretrained(run.weights)
    first, last = (compare_with_teacher(teacher, m, clouds, keypoints=128) for m in (before, student))
    assert last.cosine > first.cosine + 0.2
    assert run.agreement.cosine > 0.2
    assert "cosine to the teacher" in run.summary()
    assert student.options.width == 0.125
    assert torch.equal(student.support.size, teacher.support.size), "the support is that of the teacher"
    rows = [json.loads(line) for line in (tmp_path / "log.jsonl").read_text().splitlines()]
    assert {"distance", "relation"} <= set(rows[0])
    assert rows[-1]["held_out_cosine"] > 0.2


def test_model_agrees_with_itself_but_not_with_another(teacher, clouds):
    torch.manual_seed(2)
    untrained = WSDesc(**teacher.options.model_dump())
    own, other = (
        compare_with_teacher(teacher, model, clouds, keypoints=64) for model in (teacher, untrained)
    )
    assert own == (pytest.approx(1, abs=1e-5), 1.0)
    assert other.cosine < 0.9
    assert other.neighbours < 0.7
    assert set(own.figures()) == {"held_out_cosine", "held_out_neighbours"}


def test_resumed_distillation_gives_equal_bits(teacher, clouds, tmp_path):
    o, source = options(teacher, steps=3), RandomPairs(clouds, 0)
    whole = run_distillation(teacher, source, o, tmp_path / "whole")
    assert not run_distillation(teacher, source, o, tmp_path / "parts", stop_after=0).finished
    parts = run_distillation(teacher, source, o, tmp_path / "parts", resume=True)
    assert whole.weights.read_bytes() == parts.weights.read_bytes()


def test_loss_equals_its_formula(teacher, clouds):
    distiller = Distiller(teacher, options(teacher, distill={"relation_weight": 3.0}))
    (pair,) = Prefetcher(RandomPairs(clouds, 0), distiller).take(0)
    loss, distance, relation, valid = distiller.gradients([pair])[0].tolist()
    own, seen = (torch.cat([m.voxels(scene) for scene in pair]) for m in (distiller.model, teacher))
    student, target = distiller.model.network(own).detach(), teacher.network(seen).detach()
    assert distance == pytest.approx(0.5 * (student - target).square().sum(1).mean().item(), rel=1e-4)
    assert relation == pytest.approx(
        (student @ student.T - target @ target.T).square().mean().item(), rel=1e-4
    )
    assert loss == pytest.approx(distance + 3 * relation, rel=1e-5)
    assert valid == 1
    assert all(p.grad is not None for p in distiller.model.network.parameters())
    assert all(p.grad is None for p in teacher.parameters())


def test_loss_of_a_student_equal_to_its_teacher_is_zero(teacher, clouds):
    given = teacher.options
    o = student_options(teacher, given.width, given.layers, given.cutoff, keypoints=32)
    distiller = Distiller(teacher, o)
    distiller.model.load_state_dict(teacher.state_dict())
    loss, *_ = distiller.gradients(Prefetcher(RandomPairs(clouds, 0), distiller).take(0))[0].tolist()
    assert loss == pytest.approx(0, abs=1e-5)


def test_learning_rate_rises_then_falls(teacher):
    distiller = Distiller(teacher, options(teacher, steps=100, distill={"warmup_steps": 10}))
    rates = []
    for step in range(100):
        distiller.set_learning_rates(step)
        rates.append(distiller.optimizers["network"].param_groups[0]["lr"])
    assert rates[0] < rates[5] < rates[10]
    assert rates[10] == pytest.approx(0.9 * 5e-3)
    assert rates[99] == pytest.approx(0.01 * 5e-3)


def test_each_cloud_occurs_once_per_epoch(clouds):
    three = [*clouds, clouds[0][::2]]
    source = RandomPairs(three, seed=0)
    drawn = [id(cloud) for number in range(3) for cloud in source.pair(number)]
    assert set(drawn[:3]) == set(drawn[3:]) == {id(c) for c in three}
    with pytest.raises(WSDescError, match="no clouds"):
        RandomPairs([], 0)


def test_keypoints_depend_only_on_the_generator(teacher, clouds):
    distiller = Distiller(teacher, options(teacher))
    a, b = (distiller.prepare(*clouds, generator_of(7)) for _ in range(2))
    assert torch.equal(a.p.keypoints, b.p.keypoints)
    assert len(a.q.keypoints) == 32


def test_student_may_differ_only_in_width(teacher):
    o = options(teacher)
    wrong = o.model_copy(update={"descriptor": o.descriptor.model_copy(update={"dimension": 16})})
    with pytest.raises(WSDescError, match="dimension"):
        Distiller(teacher, wrong)


@pytest.fixture
def scan(room, tmp_path):
    write_points(tmp_path / "scan.ply", room.source[::4])
    return tmp_path / "scan.ply"


def test_distill_trains_on_one_scan_and_resumes_with_its_options(teacher, scan, tmp_path):
    data = {"unit": 1.0, "min_coverage": 0.0}
    given = student_options(teacher, 0.125, steps=2, keypoints=32, seed=3, data=data)
    first = wsdesc.distill(teacher, scan, tmp_path / "run", options=given, device="cpu", minutes=0)
    assert not first.finished
    run = wsdesc.distill(teacher, out=tmp_path / "run", device="cpu", resume=True)
    assert run.finished
    student = WSDesc.from_pretrained(tmp_path / "run")
    assert student.options == given.descriptor


def test_command_distills_and_records_the_teacher(teacher, scan, tmp_path):
    teacher.save(tmp_path / "teacher.safetensors")
    name, out = str(tmp_path / "teacher.safetensors"), tmp_path / "run"
    command = ["distill", name, str(scan), "--out", str(out), "--width", "0.125", "--steps", "2"]
    done = CliRunner().invoke(app, [*command, "--seed", "3", "--device", "cpu", "--minutes", "0"])
    assert done.exit_code == 0, done.output
    assert f"continue with: wsdesc distill {name} --out {out} --resume --device cpu" in done.output
    saved = TrainOptions.load(out / "options.yaml")
    assert (saved.distill.teacher, saved.seed, saved.steps, saved.descriptor.width) == (name, 3, 2, 0.125)


def test_share_of_clouds_is_held_out(clouds, teacher):
    many = [clouds[0][n:] for n in range(20)]
    source, held_out = student_source(many, options(teacher))
    assert len(held_out) == 2
    assert not {id(c) for c in held_out} & {id(c) for c in source.clouds}
