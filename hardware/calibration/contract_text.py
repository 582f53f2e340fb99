"""Puts a camera's pose and lens into the text of a contract: the rest of the file stays as it is, comments included."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import yaml

from hardware.calibration.hand_eye import Calibration
from robolearn.core import BadInput
from robolearn.io.atomic import write_text
from robots.stations import load_contract

DIGITS = 6  # of metres and quaternions: a micrometre


def snippet(found: Calibration) -> dict[str, str]:
    """Key of the camera's section → its value as YAML in one line."""
    position, quaternion = _numbers(found.pose.position), _numbers(found.pose.quaternion)
    lens = found.intrinsics
    numbers = ", ".join(f"{key}: {getattr(lens, key):.3f}" for key in ("fx", "fy", "cx", "cy"))
    distortion = f", distortion: {_numbers(lens.distortion)}" if lens.distortion else ""
    return {
        "pose": f"{{parent: {found.parent}, position: {position}, quaternion: {quaternion}}}",
        "intrinsics": f"{{size: [{lens.size[0]}, {lens.size[1]}], {numbers}{distortion}}}",
    }


def write_into(path: Path, camera: str, values: Mapping[str, str]) -> None:
    """Set `values` in the section of `camera` of the contract `path`, each on a line of its own.

    Raises:
      BadInput: the section is not there or in one line, or what would be written is no contract; nothing is changed.
    """
    text = path.read_text(encoding="utf-8")
    lines = text.splitlines(keepends=True)
    for key, value in values.items():
        lines = _with(lines, path.name, camera, key, value)
    # Read before it takes the place of the old one.
    trial = path.with_name(f".{path.stem}.calibrated.yaml")
    try:
        write_text(trial, "".join(lines))
        load_contract(trial)
        write_text(path, "".join(lines))
    finally:
        trial.unlink(missing_ok=True)


def _with(lines: list[str], file: str, camera: str, key: str, value: str) -> list[str]:
    section = _child(_child(yaml.compose("".join(lines), yaml.SafeLoader), "cameras"), camera)
    if not isinstance(section, yaml.MappingNode) or not section.value or section.flow_style:
        what = f"{file}: cameras.{camera}"
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


def _numbers(values: tuple[float, ...]) -> str:
    return f"[{', '.join(f'{round(value, DIGITS) + 0.0:.{DIGITS}f}' for value in values)}]"
