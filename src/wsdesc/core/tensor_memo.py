"""Remember values computed from tensors on a GPU, where computing them again needs a launch."""

from __future__ import annotations

from typing import Generic, TypeVar

from torch import Tensor
from torch.utils.weak import WeakIdKeyDictionary

ValueT = TypeVar("ValueT")


class TensorMemo(Generic[ValueT]):
    """Values of tensors on a GPU, kept as long as the tensors exist and are not changed.

    Tensors of the CPU and those of inference mode, whose changes torch does not count, are not remembered.
    """

    def __init__(self) -> None:
        self._values = WeakIdKeyDictionary()

    def get(self, tensor: Tensor) -> ValueT | None:
        """Return the value of a tensor; None if none is remembered."""
        if not tensor.is_cuda or tensor.is_inference():
            return None
        version, value = self._values.get(tensor, (None, None))
        return value if version == tensor._version else None

    def set(self, tensor: Tensor, value: ValueT) -> None:
        """Remember the value of a tensor."""
        if tensor.is_cuda and not tensor.is_inference():
            self._values[tensor] = (tensor._version, value)
