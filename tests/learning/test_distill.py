"""Distillation: the student comes near its teacher, keeps its support, stops and goes on."""

from __future__ import annotations

import json

import pytest
import torch

from wsdesc import WSDesc, WSDescError, write_points
from wsdesc.cli.train import distill as command
from wsdesc.core.rng import generator_of
from wsdesc.learning.distill import (
    Distiller,
    RandomPairs,
    agreement,
    distill,
    student_options,
    student_source,
)
from wsdesc.learning.options import TrainOptions
from wsdesc.learning.prefetch import Feed
from wsdesc.learning.sources import drop_sparse


@pytest.fixture(scope="module")
def teacher() -> WSDesc:
    torch.manual_seed(1)
    return WSDesc(width=0.25, resolution=8, support_start=1.1).eval()


@pytest.fixture(scope="module")
def clouds(room):
    return [drop_sparse(torch.as_tensor(c), 0.3, 0.45)[::4] for c in (room.source, room.target)]


def options(teacher, **more):
    changes = {"steps": 40, "keypoints": 32, "distill": {"warm_up": 4}, "learning_rate": 5e-3, **more}
    return student_options(teacher, 0.125, **changes)


def test_the_student_comes_near_its_teacher(teacher, clouds, tmp_path):
    o = options(teacher, validate_every=40)
    before = Distiller(teacher, o).model
    weights = distill(teacher, RandomPairs(clouds, 0), o, tmp_path, held_out=clouds)
    student = WSDesc.from_pretrained(weights)
    there, here = (agreement(teacher, m, clouds, keypoints=128) for m in (before, student))
    assert here["held_out_cosine"] > there["held_out_cosine"] + 0.2
    assert student.options.width == 0.125
    assert torch.equal(student.support.size, teacher.support.size), "the support is the teacher's"
    rows = [json.loads(line) for line in (tmp_path / "log.jsonl").read_text().splitlines()]
    assert {"distance", "relation"} <= set(rows[0])
    assert rows[-1]["held_out_cosine"] > 0.2


def test_a_model_agrees_with_itself_and_with_no_stranger(teacher, clouds):
    torch.manual_seed(2)
    stranger = WSDesc(**teacher.options.model_dump())
    own, other = (agreement(teacher, model, clouds, keypoints=64) for model in (teacher, stranger))
    assert own == {"held_out_cosine": pytest.approx(1, abs=1e-5), "held_out_neighbours": 1.0}
    assert other["held_out_cosine"] < 0.9
    assert other["held_out_neighbours"] < 0.7


def test_stopping_and_going_on_changes_no_bit(teacher, clouds, tmp_path):
    o = options(teacher, steps=4)
    whole = distill(teacher, RandomPairs(clouds, 0), o, tmp_path / "whole")
    assert distill(teacher, RandomPairs(clouds, 0), o, tmp_path / "parts", stop_after=0) is None
    parts = distill(teacher, RandomPairs(clouds, 0), o, tmp_path / "parts", resume=True)
    assert whole.read_bytes() == parts.read_bytes()


def test_the_loss_is_what_it_says(teacher, clouds):
    distiller = Distiller(teacher, options(teacher, distill={"relational": 3.0}))
    (pair,) = Feed(RandomPairs(clouds, 0), distiller).take(0)
    loss, distance, relation, good = distiller.gradients([pair])[0].tolist()
    grids = torch.cat([distiller.model.voxels(scene) for scene in pair])
    ours, theirs = distiller.model.network(grids).detach(), teacher.network(grids).detach()
    assert distance == pytest.approx(0.5 * (ours - theirs).square().sum(1).mean().item(), rel=1e-4)
    assert relation == pytest.approx((ours @ ours.T - theirs @ theirs.T).square().mean().item(), rel=1e-4)
    assert loss == pytest.approx(distance + 3 * relation, rel=1e-5)
    assert good == 1
    assert all(p.grad is not None for p in distiller.model.network.parameters())
    assert all(p.grad is None for p in teacher.parameters())


def test_a_student_equal_to_its_teacher_has_nothing_to_learn(teacher, clouds):
    o = student_options(teacher, teacher.options.width, keypoints=32)
    distiller = Distiller(teacher, o)
    distiller.model.load_state_dict(teacher.state_dict())
    loss, *_ = distiller.gradients(Feed(RandomPairs(clouds, 0), distiller).take(0))[0].tolist()
    assert loss == pytest.approx(0, abs=1e-5)


def test_the_rate_rises_then_falls_to_zero(teacher):
    distiller = Distiller(teacher, options(teacher, steps=100, distill={"warm_up": 10}))
    rates = []
    for step in range(100):
        distiller.pace(step)
        rates.append(distiller.optimizers["network"].param_groups[0]["lr"])
    assert rates[0] < rates[5] < rates[10]
    assert rates[10] == pytest.approx(0.9 * 5e-3)
    assert rates[99] == pytest.approx(0.01 * 5e-3)


def test_any_two_clouds_all_once_in_a_round(clouds):
    three = [*clouds, clouds[0][::2]]
    source = RandomPairs(three, seed=0)
    drawn = [id(cloud) for number in range(3) for cloud in source.pair(number)]
    assert set(drawn[:3]) == set(drawn[3:]) == {id(c) for c in three}
    with pytest.raises(WSDescError, match="no clouds"):
        RandomPairs([], 0)


def test_keypoints_are_drawn_by_the_generator_alone(teacher, clouds):
    distiller = Distiller(teacher, options(teacher))
    a, b = (distiller.prepare(*clouds, generator_of(7)) for _ in range(2))
    assert torch.equal(a.p.keypoints, b.p.keypoints)
    assert len(a.q.keypoints) == 32


def test_only_the_width_may_differ(teacher):
    o = options(teacher)
    wrong = o.model_copy(update={"descriptor": o.descriptor.model_copy(update={"dimension": 16})})
    with pytest.raises(WSDescError, match="dimension"):
        Distiller(teacher, wrong)


def test_the_command_makes_a_fast_model_of_one_scan(teacher, room, tmp_path, capsys):
    write_points(tmp_path / "scan.ply", room.source)
    teacher.save(tmp_path / "teacher.safetensors")
    name = str(tmp_path / "teacher.safetensors")
    command(name, [tmp_path / "scan.ply"], tmp_path / "run", width=0.125, steps=2, seed=3, device="cpu")
    assert "model.safetensors" in capsys.readouterr().out
    student = WSDesc.from_pretrained(tmp_path / "run" / "model.safetensors")
    assert student.options == teacher.options.model_copy(update={"width": 0.125})
    saved = TrainOptions.load(tmp_path / "run" / "options.yaml")
    assert (saved.distill.teacher, saved.seed, saved.steps) == (name, 3, 2)


def test_some_clouds_are_held_out(clouds, teacher):
    many = [clouds[0][n:] for n in range(20)]
    source, held_out = student_source(many, options(teacher))
    assert len(held_out) == 2
    assert not {id(c) for c in held_out} & {id(c) for c in source.clouds}
