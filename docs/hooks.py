"""Hooks of the documentation build: MathML formulas, the generated command reference, and the changelog."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from latex2mathml.converter import convert

_FORMULA = re.compile(r"(?<!\\)\$\$(.+?)\$\$|(?<![\\$\w])\$([^$\n]+?)\$(?![\w$])", re.DOTALL)
_CODE = re.compile(r"(^```.*?^```|`[^`\n]+`)", re.DOTALL | re.MULTILINE)
_COMMANDS = "<!-- commands -->"
_CHANGELOG = "<!-- changelog -->"


def on_page_markdown(markdown: str, **_: Any) -> str:
    """Insert the generated parts, and convert LaTeX outside of code to MathML."""
    if _COMMANDS in markdown:
        markdown = markdown.replace(_COMMANDS, _command_reference())
    if _CHANGELOG in markdown:
        markdown = markdown.replace(_CHANGELOG, _changelog())
    parts = _CODE.split(markdown)
    return "".join(part if k % 2 else _FORMULA.sub(_to_mathml, part) for k, part in enumerate(parts))


def _to_mathml(match: re.Match[str]) -> str:
    block, inline = match.groups()
    return convert((block or inline).strip(), display="block" if block else "inline")


def _changelog() -> str:
    """Read the changelog, with links relative to the folder of the documentation."""
    text = (Path(__file__).parents[1] / "CHANGELOG.md").read_text(encoding="utf-8")
    return text.replace("](docs/", "](")


def _command_reference() -> str:
    from typer.main import get_command

    from wsdesc.cli.app import app

    root = get_command(app)
    return "\n\n".join(_sections(root, "wsdesc"))


def _sections(command: Any, path: str) -> list[str]:
    """Describe a command, or all commands of a group, in Markdown."""
    if hasattr(command, "commands"):
        return [
            part for name in command.commands for part in _sections(command.commands[name], f"{path} {name}")
        ]
    arguments = [_usage(p) for p in command.params if p.param_type_name == "argument"]
    usage = " ".join([path, *arguments, "[OPTIONS]"])
    lines = [f"## {path}", "", (command.help or "").strip(), "", "```", usage, "```", ""]
    rows = [_row(parameter) for parameter in command.params if not parameter.hidden]
    if rows:
        lines += ["| argument | meaning | default |", "|---|---|---|", *rows]
    return ["\n".join(lines)]


def _usage(argument: Any) -> str:
    """Return an argument as in usage lines: [BRACKETS] if it is optional, … if there may be several."""
    name = argument.name.upper() + (" …" if argument.nargs == -1 else "")
    return name if argument.required else f"[{name}]"


def _row(parameter: Any) -> str:
    names = ", ".join(f"`{name}`" for name in (*parameter.opts, *parameter.secondary_opts))
    if parameter.param_type_name == "argument":
        names = f"`{parameter.name.upper()}`"
    text = (parameter.help or "").replace("|", "\\|")
    default = parameter.default
    absent = default is None or default is False or default == ()
    shown = "required" if parameter.required else "" if absent else f"`{default}`"
    return f"| {names} | {text} | {shown} |"
