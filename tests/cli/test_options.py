"""Options of the commands: defaults and help texts come from the option models."""

import inspect

import pytest
import typer
from typer.main import get_command

import wsdesc
from wsdesc.cli.app import app
from wsdesc.cli.options import field_option
from wsdesc.descriptor.options import DescribeOptions
from wsdesc.reconstruction.options import ReconstructOptions
from wsdesc.registration.options import RegisterOptions

MODELS = [
    ("register", RegisterOptions, {"keypoints", "scale"}),  # texts in the command
    ("describe", DescribeOptions, set()),
    ("reconstruct", ReconstructOptions, set()),
]


def parameters(command):
    return {parameter.name: parameter for parameter in get_command(app).commands[command].params}


@pytest.mark.parametrize(("command", "model", "different"), MODELS)
def test_defaults_and_help_of_commands_are_those_of_the_models(command, model, different):
    options = parameters(command)
    compared = [name for name in model.model_fields if name in options and name not in different]
    assert {"model", "resolution", "device", "seed"} <= set(compared)
    for name in compared:
        assert options[name].default == model.model_fields[name].default, name
        if name not in ("model", "device", "seed", "resolution"):  # shared by several commands
            assert options[name].help == model.model_fields[name].description, name


@pytest.mark.parametrize(("command", "model", "different"), MODELS)
def test_defaults_of_functions_are_those_of_the_models(command, model, different):
    signature = inspect.signature(getattr(wsdesc, command))
    for name, field in model.model_fields.items():
        assert signature.parameters[name].default == field.default, name


@pytest.mark.parametrize("command", sorted(get_command(app).commands))
def test_every_option_of_every_command_has_help(command):
    for name, parameter in parameters(command).items():
        if name != "help":
            assert parameter.help, name


def test_option_of_a_field_has_its_description_and_limits():
    option = field_option(DescribeOptions, "keypoints")
    assert isinstance(option, typer.models.OptionInfo)
    assert option.help == DescribeOptions.model_fields["keypoints"].description
    assert option.min == 3
