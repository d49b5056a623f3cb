"""Weights files: save, load, find, and reject invalid files."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import safetensors
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

from wsdesc import WSDesc, WSDescError
from wsdesc.core.errors import FileFormatError, InputError
from wsdesc.descriptor import pretrained

OPTIONS: dict[str, Any] = {
    "width": 0.125,
    "resolution": 8,
    "dimension": 16,
    "sigma": 2e-3,
    "support_start": 0.7,
    "frame_radius": 0.25,
}


@pytest.fixture
def saved(tmp_path: Path) -> Path:
    torch.manual_seed(0)
    path = tmp_path / "model.safetensors"
    WSDesc(**OPTIONS).save(path)
    return path


def rewrite(path: Path, header: Any = None, **changes: Tensor | None) -> None:
    """Write the file again with another header (None: the same) and with tensors changed or left out."""
    with safetensors.safe_open(str(path), framework="pt") as file:
        metadata = file.metadata()
    tensors = {**load_file(path), **changes}
    if header is not None:
        metadata = {"wsdesc": header if isinstance(header, str) else json.dumps(header)}
    save_file({k: v for k, v in tensors.items() if v is not None}, path, metadata=metadata)


@pytest.mark.parametrize("kind", ["universal", "fixed", "local", "global"])
def test_save_and_load(kind: str, tmp_path: Path) -> None:
    torch.manual_seed(1)
    model = WSDesc(**OPTIONS, support=kind).eval()
    path = tmp_path / "model.safetensors"
    model.save(path)
    other = WSDesc.from_pretrained(path)
    assert other.options == model.options
    assert not other.training
    before, after = model.state_dict(), other.state_dict()
    assert before.keys() == after.keys()
    assert all(torch.equal(before[name], after[name]) for name in before)
    points = torch.rand(200, 3)
    with torch.inference_mode():
        assert torch.equal(model(points, points[:5]), other(points, points[:5]))


def test_save_as_float16(saved: Path, tmp_path: Path) -> None:
    model = WSDesc.from_pretrained(saved)
    model.save(tmp_path / "half.safetensors", half=True)
    back = WSDesc.from_pretrained(tmp_path / "half.safetensors")
    assert (tmp_path / "half.safetensors").stat().st_size < 0.6 * saved.stat().st_size
    for name, tensor in back.state_dict().items():
        assert tensor.dtype == torch.float32
        torch.testing.assert_close(tensor, model.state_dict()[name], rtol=1e-3, atol=1e-6)


def test_the_header_has_the_options(saved: Path) -> None:
    with safetensors.safe_open(str(saved), framework="pt") as file:
        header = json.loads(file.metadata()["wsdesc"])
    assert {name: header[name] for name in OPTIONS} == OPTIONS
    assert WSDesc.from_pretrained(str(saved)).options.frame_radius == 0.25


def test_overwrite_weights(saved: Path) -> None:
    model = WSDesc.from_pretrained(saved).train()
    with torch.no_grad():
        model.network.head.weight.fill_(0.5)
    model.save(saved)
    assert (WSDesc.from_pretrained(saved).network.head.weight == 0.5).all()


class Trap:
    """An object whose unpickling writes a file."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> Any:
        return Path.touch, (self.path,)


def test_pickles_are_not_loaded(tmp_path: Path) -> None:
    path, sprung = tmp_path / "model.pth", tmp_path / "sprung"
    torch.save({"weights": torch.zeros(3), "trap": Trap(sprung)}, path)
    with pytest.raises(FileFormatError, match=r"model\.pth.*pickle"):
        WSDesc.from_pretrained(path)
    assert not sprung.exists()


@pytest.mark.parametrize("keep", [0, 5, 100, -1, -1000])
def test_truncated_files(keep: int, saved: Path) -> None:
    saved.write_bytes(saved.read_bytes()[:keep])
    with pytest.raises(FileFormatError, match=r"model\.safetensors"):
        WSDesc.from_pretrained(saved)


@pytest.mark.parametrize("content", [b"\xff" * 64, b"\x00" * 64, b"ply\nformat ascii 1.0\n" * 9])
def test_files_of_another_format(content: bytes, saved: Path) -> None:
    saved.write_bytes(content)
    with pytest.raises(FileFormatError, match=r"model\.safetensors"):
        WSDesc.from_pretrained(saved)


def test_safetensors_without_options(saved: Path) -> None:
    save_file(load_file(saved), saved)
    with pytest.raises(FileFormatError, match=r"model\.safetensors.*header"):
        WSDesc.from_pretrained(saved)


@pytest.mark.parametrize(
    ("header", "message"),
    [
        ("{", "header"),
        ("", "header"),
        ([], "header"),
        (["width"], "header"),
        ("null", "header"),
        ("3", "header"),
        ('"width"', "header"),
        ({**OPTIONS, "wdith": 2.0}, "width"),
        ({**OPTIONS, "resolution": 0}, "resolution"),
        ({**OPTIONS, "width": "wide"}, "width"),
        ('{"width": Infinity}', "width"),
        ('{"width": NaN}', "width"),
        ({**OPTIONS, "resolution": 16}, "fit"),
        ({**OPTIONS, "width": 0.25}, "fit"),
        ({**OPTIONS, "support": "fixed"}, "fit"),
    ],
)
def test_invalid_headers(header: Any, message: str, saved: Path) -> None:
    rewrite(saved, header)
    with pytest.raises(WSDescError, match=rf"(?s)model\.safetensors.*{message}"):
        WSDesc.from_pretrained(saved)


def test_invalid_tensors(saved: Path) -> None:
    whole = saved.read_bytes()
    weight = load_file(saved)["network.head.weight"]
    spoiled = weight.clone()
    spoiled.view(-1)[3] = torch.nan
    for change in (
        {"network.head.weight": weight[..., 1:].contiguous()},
        {"network.head.weight": None},
        {"network.tail.weight": torch.zeros(3)},
        {"network.head.weight": spoiled},
        {"support.size": torch.tensor(torch.inf)},
    ):
        saved.write_bytes(whole)
        rewrite(saved, None, **change)
        with pytest.raises(FileFormatError, match=r"model\.safetensors"):
            WSDesc.from_pretrained(saved)


def test_unknown_names_and_paths(tmp_path: Path) -> None:
    for name in ("kitchen-sink", str(tmp_path / "absent.safetensors"), str(tmp_path)):
        with pytest.raises(FileFormatError, match=name):
            WSDesc.from_pretrained(name)


def test_an_unknown_option_suggests_the_nearest() -> None:
    with pytest.raises(InputError, match=r"'sigam'.*'sigma'"):
        WSDesc(sigam=1e-3)


def test_shipped_weights_load() -> None:
    for name in pretrained.available():
        assert pretrained.find(name).is_file()
        WSDesc.from_pretrained(name)


def test_a_failed_write_keeps_the_old_file(saved: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before = saved.read_bytes()

    def half(path: Path, content: bytes) -> None:
        path.write_text("half")
        raise OSError(28, "No space left on device")

    model = WSDesc.from_pretrained(saved)
    monkeypatch.setattr(Path, "write_bytes", half)
    with pytest.raises(FileFormatError, match=r"model\.safetensors.*No space"):
        model.save(saved)
    assert saved.read_bytes() == before
    assert list(saved.parent.iterdir()) == [saved]


def test_save_into_a_missing_folder(tmp_path: Path) -> None:
    with pytest.raises(FileFormatError, match="nowhere"):
        WSDesc(**OPTIONS).save(tmp_path / "nowhere" / "model.safetensors")


def test_weights_have_the_usual_permissions(tmp_path: Path) -> None:
    WSDesc(**OPTIONS).save(tmp_path / "a.safetensors")
    (tmp_path / "ordinary").write_text("")
    assert len({path.stat().st_mode for path in tmp_path.iterdir()}) == 1


def test_folder_of_a_training_run(saved: Path, tmp_path: Path) -> None:
    assert pretrained.find(tmp_path) == saved
    assert WSDesc.from_pretrained(tmp_path).options.frame_radius == 0.25
    saved.rename(tmp_path / "checkpoint.safetensors")
    with pytest.raises(FileFormatError, match=r"the folder has no model\.safetensors"):
        pretrained.find(tmp_path)


def test_unknown_models_list_the_shipped_ones() -> None:
    with pytest.raises(FileFormatError, match=r"kitchen-sink: unknown model; .*indoor, indoor-fast, objects"):
        pretrained.find("kitchen-sink")
