"""Options: validation, error messages, YAML files."""

from pathlib import Path

import pytest
from pydantic import Field

from wsdesc.core.errors import FileFormatError, InputError
from wsdesc.core.options import NameOrPath, Options


class Loss(Options):
    weight: float = Field(1.0, gt=0, description="Weight of the loss.")
    margin: float = Field(0.5, description="Margin of the loss.")


class Training(Options):
    steps: int = Field(100, ge=1, description="Number of steps.")
    seed: int = Field(0, description="Seed of all random choices.")
    loss: Loss = Field(default_factory=Loss, description="Options of the loss.")
    teacher: Loss | None = Field(None, description="Options of the teacher's loss.")
    rate: float | None = Field(None, gt=0, description="Learning rate.")
    rounds: tuple[int, ...] = Field((1,), min_length=1, description="Steps of each round.")
    resume: bool | None = Field(None, description="Whether to continue.")


def test_defaults_and_values():
    assert Training.read({}) == Training()
    options = Training.read({"steps": 3, "loss": {"weight": 2}})
    assert (options.steps, options.loss.weight, options.loss.margin) == (3, 2.0, 0.5)


def test_truth_values_are_accepted_where_they_are_meant():
    assert Training.read({"resume": True}).resume is True


def test_paths_are_accepted_for_names():
    class Weights(Options):
        model: NameOrPath = Field("indoor", description="Name or file.")

    assert Weights.read({"model": Path("runs") / "mine"}).model == str(Path("runs") / "mine")
    assert Weights.read({"model": "objects"}).model == "objects"
    with pytest.raises(InputError, match=r"^model: "):
        Weights.read({"model": 3})


def test_options_cannot_be_changed():
    with pytest.raises(ValueError, match="frozen"):
        Training().steps = 5


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"stepz": 3}, r"^unknown option 'stepz': did you mean 'steps'\?$"),
        (
            {"init": 3},
            "^unknown option 'init'; options are: steps, seed, loss, teacher, rate, rounds, resume$",
        ),
        ({"loss": {"wieght": 3}}, r"^unknown option 'loss\.wieght': did you mean 'weight'\?$"),
        ({"loss": {"x": 3}}, r"^unknown option 'loss\.x'; options are: weight, margin$"),
        ({"teacher": {"x": 3}}, r"^unknown option 'teacher\.x'; options are: weight, margin$"),
        ({"x" * 5000: 3}, "^unknown option 'xxx"),
        ({"steps": 0}, "^steps: must be greater than or equal to 1, not 0$"),
        ({"steps": "many"}, "^steps: must be a valid integer, not 'many'$"),
        ({"loss": {"weight": float("nan")}}, r"^loss\.weight: must be a finite number, not nan$"),
        ({"seed": 10**30}, "^seed: .*too large"),
        ({"seed": -(10**30)}, "^seed: .*too large"),
        ({"loss": None}, "^loss: "),
        ({"steps": True}, "^steps: must be a number, not True$"),
        ({"loss": {"weight": False}}, r"^loss\.weight: must be a number, not False$"),
        ({"rate": True}, "^rate: must be a number, not True$"),
        ({"rounds": ()}, "^rounds: must not be empty$"),
        ({"rounds": "many"}, "^rounds: must be a sequence, not 'many'$"),
    ],
)
def test_wrong_values_are_reported_in_one_line(values, message):
    with pytest.raises(InputError, match=message):
        Training.read(values)


def test_files_are_read_back(tmp_path):
    path = tmp_path / "options.yaml"
    options = Training.read({"steps": 7, "teacher": {"margin": 0.1}})
    options.save(path)
    assert Training.load(path) == options
    assert Training.load(path, steps=8).steps == 8


def test_errors_name_the_file(tmp_path):
    path = tmp_path / "options.yaml"
    path.write_text("init: 3")
    with pytest.raises(InputError, match=r"options\.yaml: unknown option 'init'; options are: steps"):
        Training.load(path)
    with pytest.raises(FileFormatError, match=r"missing\.yaml"):
        Training.load(tmp_path / "missing.yaml")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("- 1\n- 2", "must contain names and values, not a list"),
        ("steps: [", "line 1: invalid YAML"),
        ("a: &x 1\nb: *x", "line 2: invalid YAML: aliases are not allowed"),
        ("steps: 1\nsteps: 2", "line 2: invalid YAML: 'steps' occurs twice"),
        ("steps: " + 60_000 * "1", "longer than 50000 bytes"),
        (3000 * "[", "nested too deeply"),
        ("a: 2001-99-99", "invalid YAML"),
    ],
)
def test_invalid_yaml_is_refused(tmp_path, text, message):
    path = tmp_path / "options.yaml"
    path.write_text(text)
    with pytest.raises(FileFormatError, match=message):
        Training.load(path)


def test_bytes_that_are_not_text_are_refused(tmp_path):
    path = tmp_path / "options.yaml"
    path.write_bytes(b"\xff\xfe\x00steps")
    with pytest.raises(FileFormatError, match="invalid YAML"):
        Training.load(path)
