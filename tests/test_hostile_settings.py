"""Damaged and malicious weights and options are rejected with a reason."""

import json
import struct

import pytest
import torch
from safetensors.torch import save_file

from wsdesc.core.errors import FileFormatError, WSDescError
from wsdesc.descriptor.model import WSDesc
from wsdesc.learning.options import TrainOptions

SMALL = {"width": 0.01, "resolution": 4, "dimension": 2}


@pytest.fixture
def tensors() -> dict[str, torch.Tensor]:
    return {name: tensor.clone().contiguous() for name, tensor in WSDesc(**SMALL).state_dict().items()}


def write(path, tensors, options=SMALL):
    save_file(tensors, str(path), metadata={"wsdesc": json.dumps(options)})
    return path


def test_a_header_of_a_gigabyte_is_rejected(tmp_path):
    path = tmp_path / "model.safetensors"
    with path.open("wb") as file:
        file.write(struct.pack("<Q", 2**30))
        file.truncate(2**30 + 8)  # sparse: takes no space on the disk
    with pytest.raises(FileFormatError, match=r"model\.safetensors.*header too large"):
        WSDesc.from_pretrained(path)


@pytest.mark.parametrize("kind", [torch.float8_e4m3fn, torch.bool, torch.complex64, torch.int8])
def test_unsupported_number_types_are_rejected(tmp_path, tensors, kind):
    tensors["network.head.bias"] = torch.zeros(2).to(kind)
    with pytest.raises(
        FileFormatError, match=r"head\.bias has the unsupported number type|not a safetensors"
    ):
        WSDesc.from_pretrained(write(tmp_path / "a.safetensors", tensors))


def test_weights_that_do_not_fit_are_rejected_before_the_network_is_built(tmp_path, tensors):
    giant = {"width": 16, "resolution": 64, "dimension": 4096}  # 1 TB of weights in the last layer alone
    path = write(tmp_path / "a.safetensors", tensors, giant)
    with pytest.raises(
        FileFormatError, match=r"convolutions\.0\.weight has the shape \(1, .* expected \(512, "
    ):
        WSDesc.from_pretrained(path)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("stepz: 3", r"unknown option 'stepz': did you mean 'steps'\?"),
        ("loss: {lamda_o: 3}", r"unknown option 'loss.lamda_o': did you mean 'lambda_o'\?"),
        ("distill: {teahcer: a}", r"unknown option 'distill.teahcer': did you mean 'teacher'\?"),
        ("a: &a [1]\nsteps: *a", "line 2.*aliases"),
        ("steps: 1\n\nsteps: 2", "line 3.*'steps' occurs twice"),
        ("steps: 0x" + "f" * 999, "steps: .*too large"),
        ("steps: 1e30", "steps: .*"),
        ("steps: many", "steps: .*integer"),
        ("loss: [1]", "loss: "),
        ("[1, 2]", "names and values, not a list"),
        ("steps: !!python/name:os.system", "line 1.*constructor"),
        ("x" * 60_000, "longer than"),
    ],
)
def test_invalid_options_give_a_one_line_error(tmp_path, text, message):
    (tmp_path / "a.yaml").write_text(text)
    with pytest.raises(WSDescError, match=rf"a\.yaml.*{message}"):
        TrainOptions.load(tmp_path / "a.yaml")
