"""Sets keys in the text of a contract: the rest of the file stays as it is, comments included."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import yaml

from robolearn.core import BadInput
from robolearn.io.atomic import write_text
from robots.stations.contract_file import load_contract
from robots.stations.values import place


def write_into(path: Path, values: Mapping[tuple[str, ...], str]) -> None:
    """Set `values`, key by key from the top → value in YAML, in the contract `path`, each on a line of its own.

    Raises:
      BadInput: a section is not there or in one line, or what would be written is no contract; nothing is changed.
    """
    lines = path.read_text(encoding="utf-8").splitlines(keepends=True)
    for (*sections, key), value in values.items():
        lines = _with(lines, place(path), sections, key, value)
    # Read before it takes the place of the old one.
    trial = path.with_name(f".{path.stem}.edited.yaml")
    try:
        write_text(trial, "".join(lines))
        load_contract(trial)
        write_text(path, "".join(lines))
    finally:
        trial.unlink(missing_ok=True)


def _with(lines: list[str], file: str, sections: list[str], key: str, value: str) -> list[str]:
    section = yaml.compose("".join(lines), yaml.SafeLoader)
    for name in sections:
        section = _child(section, name)
    if not isinstance(section, yaml.MappingNode) or not section.value or section.flow_style:
        what = f"{file}: {'.'.join(sections)}"
        raise BadInput(what, got="no section with a line for each key", expected="one", hint="Copy the lines yourself")
    first = section.value[0][0].start_mark
    line = f"{' ' * first.column}{key}: {value}\n"
    for name, node in section.value:
        if name.value == key:
            return [*lines[: name.start_mark.line], line, *lines[_end(node) :]]
    last = _end(section.value[-1][1])
    if lines[last - 1 : last] and not lines[last - 1].endswith("\n"):
        lines = [*lines[: last - 1], lines[last - 1] + "\n", *lines[last:]]
    return [*lines[:last], line, *lines[last:]]


def _child(node: yaml.Node | None, key: str) -> yaml.Node | None:
    for name, value in node.value if isinstance(node, yaml.MappingNode) else ():
        if name.value == key:
            return value
    return None


def _end(node: yaml.Node) -> int:
    """The line after the last one of a value; a block ends where the next one begins, comments in between included."""
    if isinstance(node, yaml.CollectionNode) and not node.flow_style and node.value:
        last = node.value[-1]
        return _end(last[1] if isinstance(last, tuple) else last)
    return node.end_mark.line + 1
