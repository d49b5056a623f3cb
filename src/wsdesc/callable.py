"""Modules that can be called: `wsdesc.register` is the room, `wsdesc.register(a, b)` what one does there."""

from __future__ import annotations

import sys
from types import ModuleType
from typing import Any


class _Callable(ModuleType):
    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return getattr(self, self.__name__.rsplit(".", 1)[-1])(*args, **kwargs)


def make_callable(name: str) -> None:
    """Let the module of this full name be called; its member of the same name answers."""
    sys.modules[name].__class__ = _Callable
