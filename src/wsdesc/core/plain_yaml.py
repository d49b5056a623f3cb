"""Read YAML files of options: names and values only.

Aliases (`*name`) are refused, because a few lines of them can expand to more values than fit into memory.
Repeated names are refused, because the safe loader would silently take the last one.
"""

from __future__ import annotations

from collections.abc import Hashable
from pathlib import Path
from typing import Any

import yaml

from wsdesc.core.errors import FileFormatError

_MAX_BYTES = 50_000  # options need a few hundred; the parser takes a second for this many


class _PlainLoader(yaml.SafeLoader):
    """Safe loader without aliases and repeated names."""

    def compose_node(self, parent: yaml.Node | None, index: Any) -> yaml.Node | None:
        if self.check_event(yaml.AliasEvent):
            mark = self.peek_event().start_mark
            raise yaml.composer.ComposerError(None, None, "aliases are not allowed", mark)
        return super().compose_node(parent, index)  # type: ignore[no-any-return]

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Hashable, Any]:
        names: set[str] = set()
        for key, _ in node.value:
            if isinstance(key, yaml.ScalarNode) and key.value in names:
                raise yaml.constructor.ConstructorError(
                    None, None, f"{key.value!r} occurs twice", key.start_mark
                )
            names.add(str(key.value))
        return super().construct_mapping(node, deep)


def read_yaml(path: str | Path) -> dict[Any, Any]:
    """Read the names and values of a YAML file.

    Raises:
        FileFormatError: The file cannot be read or contains anything else.
    """
    path = Path(path)
    try:
        with path.open("rb") as file:
            content = file.read(_MAX_BYTES + 1)
        if len(content) > _MAX_BYTES:
            raise FileFormatError(f"{path}: longer than {_MAX_BYTES} bytes: not a file of options")
        values = yaml.load(content.decode("utf-8"), _PlainLoader) or {}
    except yaml.MarkedYAMLError as error:
        line = f", line {error.problem_mark.line + 1}" if error.problem_mark else ""
        raise FileFormatError(f"{path}{line}: invalid YAML: {error.problem}") from error
    except RecursionError as error:
        raise FileFormatError(f"{path}: invalid YAML: nested too deeply") from error
    except OSError as error:
        raise FileFormatError(f"{path}: cannot be read: {error.strerror or error}") from error
    except (ValueError, ArithmeticError, yaml.YAMLError) as error:  # from numbers, dates and encodings
        raise FileFormatError(f"{path}: invalid YAML: {error}") from error
    if not isinstance(values, dict):
        raise FileFormatError(f"{path}: must contain names and values, not a {type(values).__name__}")
    return values
