"""Griffe extension: fields of classes are documented by their comments, or by `Field(description=…)`."""

from __future__ import annotations

import ast
from typing import Any

import griffe


class FieldDocs(griffe.Extension):
    """Give fields without a docstring the text that the source has for them."""

    def on_attribute_instance(
        self, *, node: ast.AST | griffe.ObjectNode, attr: griffe.Attribute, **_: Any
    ) -> None:
        if attr.docstring or not isinstance(node, ast.AnnAssign) or attr.parent is None:
            return
        text = _description(node.value) or (_comment(attr) if attr.parent.is_class else "")
        if text:
            attr.docstring = griffe.Docstring(text, parent=attr)
        if isinstance(node.value, ast.Call) and ast.unparse(node.value.func) == "Field" and node.value.args:
            attr.value = ast.unparse(node.value.args[0])  # the default alone


def _description(value: ast.expr | None) -> str:
    """Return the description in `Field(default, description=…)`."""
    for keyword in value.keywords if isinstance(value, ast.Call) else ():
        if keyword.arg == "description" and isinstance(keyword.value, ast.Constant):
            return str(keyword.value.value)
    return ""


def _comment(attr: griffe.Attribute) -> str:
    """Return the comment on the lines of a field, as a sentence."""
    text = " ".join(line.partition("  # ")[2].strip() for line in attr.lines).strip()
    return text[:1].upper() + text[1:].rstrip(".") + "." if text else ""
