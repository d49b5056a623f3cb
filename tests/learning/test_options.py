"""Options of a training: presets, recipes, descriptions and errors."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from wsdesc import WSDescError
from wsdesc.learning.options import (
    PRESETS,
    DataOptions,
    DistillOptions,
    LossOptions,
    TrainOptions,
    preset_options,
)

RECIPES = sorted((Path(__file__).parents[2] / "recipes").glob("*.yaml"))


def test_presets_are_the_papers():
    indoor, objects = preset_options("indoor"), preset_options("objects")
    assert (indoor.steps, indoor.keypoints, indoor.descriptor.support_start) == (16_000, 512, 1.5)
    assert (objects.steps, objects.keypoints, objects.descriptor.support_range) == (20_000, 128, (0.15, 0.75))
    assert (indoor.learning_rate, indoor.support_weight_decay, indoor.max_gradient_norm) == (1e-3, 0.002, 0.5)
    assert set(PRESETS) >= {"indoor", "objects", "small"}
    with pytest.raises(WSDescError, match="indoor"):
        preset_options("outdoor")


def test_every_option_has_a_description():
    for model in (TrainOptions, DataOptions, LossOptions, DistillOptions):
        assert all(field.description for field in model.model_fields.values())


def test_errors_name_file_and_option(tmp_path):
    path = tmp_path / "options.yaml"
    path.write_text("loss:\n  lamda_o: 1\n")
    with pytest.raises(WSDescError, match=r"options\.yaml.*loss\.lamda_o.*lambda_o"):
        TrainOptions.load(path)
    path.write_text("steps: -3\n")
    with pytest.raises(WSDescError, match="steps"):
        TrainOptions.load(path)
    path.write_text("[1, 2]")
    with pytest.raises(WSDescError, match=r"options\.yaml"):
        TrainOptions.load(path)
    path.write_text("!!python/object/apply:os.system ['true']")
    with pytest.raises(WSDescError, match="YAML"):
        TrainOptions.load(path)


def test_self_training_needs_start_and_excludes_the_oracle():
    with pytest.raises(WSDescError, match="start"):
        TrainOptions.read({"self_training": "infonce"})
    with pytest.raises(WSDescError, match="not both"):
        TrainOptions.read({"self_training": "infonce", "oracle": "infonce", "start": "indoor"})


@pytest.mark.parametrize("recipe", RECIPES, ids=lambda path: path.stem)
def test_recipe_is_valid_with_given_weights(recipe):
    assert TrainOptions.load(recipe, start="indoor").start == "indoor"


def test_options_do_not_import_torch():
    program = "import sys, wsdesc.learning.options; assert 'torch' not in sys.modules"
    subprocess.run([sys.executable, "-c", program], check=True, timeout=60)
