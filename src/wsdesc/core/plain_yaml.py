"""YAML as far as options need it: names and values. Nothing that grows while it is read.

A few lines with aliases (`*name`) can stand for more values than a machine holds, so there are none here; nor
are there names that occur twice, of which the safe loader would take the last without a word.
"""

from __future__ import annotations

from collections.abc import Hashable
from pathlib import Path
from typing import Any

import yaml

from wsdesc.core.errors import FileFormatError

_LONGEST = 50_000  # bytes; options are some hundred, and the parser takes a second for these


class _PlainLoader(yaml.SafeLoader):
    def compose_node(self, parent: yaml.Node | None, index: Any) -> yaml.Node | None:
        if self.check_event(yaml.AliasEvent):
            mark = self.peek_event().start_mark
            raise yaml.composer.ComposerError(None, None, "aliases are not for options", mark)
        return super().compose_node(parent, index)  # type: ignore[no-any-return]

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Hashable, Any]:
        seen: set[str] = set()
        for key, _ in node.value:
            if isinstance(key, yaml.ScalarNode) and key.value in seen:
                raise yaml.constructor.ConstructorError(
                    None, None, f"{key.value!r} occurs twice", key.start_mark
                )
            seen.add(str(key.value))
        return super().construct_mapping(node, deep)


def read_yaml(path: str | Path) -> dict[Any, Any]:
    """The names and values of a file; FileFormatError for anything else."""
    path = Path(path)
    try:
        with path.open("rb") as file:
            content = file.read(_LONGEST + 1)
        if len(content) > _LONGEST:
            raise FileFormatError(f"{path}: too long for options, which need some hundred bytes")
        values = yaml.load(content.decode("utf-8"), _PlainLoader) or {}
    except yaml.MarkedYAMLError as error:
        line = f", line {error.problem_mark.line + 1}" if error.problem_mark else ""
        raise FileFormatError(f"{path}{line}: not YAML that can be read: {error.problem}") from error
    except RecursionError as error:
        raise FileFormatError(f"{path}: not YAML that can be read: nested too deeply") from error
    except (OSError, ValueError, ArithmeticError, yaml.YAMLError) as error:  # as numbers and dates do
        raise FileFormatError(f"{path}: not YAML that can be read: {error}") from error
    if not isinstance(values, dict):
        raise FileFormatError(f"{path}: should hold names and values, not {type(values).__name__}")
    return values
