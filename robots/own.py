"""Arms of the user's own: folders that `robolearn robots new` makes, in the folder that ROBOLEARN_ROBOTS names, or in
an installed package that names one by an entry point (`robolearn.core.plugins`).

    kinova3/robot.yaml     the facts that a `RobotSpec` holds
    kinova3/model.xml      its MJCF, meshes in kinova3/meshes
    kinova3/station.yaml   a contract, which --robot kinova3 means

A folder that cannot be read is left out and logged; `robolearn robots check` names its fault.
"""

from __future__ import annotations

import functools
import logging
import os
from dataclasses import field
from pathlib import Path
from typing import Annotated

import yaml
from pydantic import ConfigDict, TypeAdapter, ValidationError
from pydantic.dataclasses import dataclass

from robolearn.core.errors import BadInput
from robolearn.core.plugins import load, package_of
from robots.spec import GripperKind, GripperSpec, RobotSpec, Triple

VARIABLE = "ROBOLEARN_ROBOTS"
FACTS, MODEL, STATION = "robot.yaml", "model.xml", "station.yaml"
GUESS = f"{STATION}: "  # begins a line of `assumed` that has to be confirmed before a real arm moves
LARGEST = 1_000_000  # [bytes]

log = logging.getLogger(__name__)

_Joints = Annotated[tuple[float, ...], "one of each joint"]


@dataclass(frozen=True, config=ConfigDict(extra="forbid"))
class OwnGripper:
    """The gripper, as `GripperSpec` has it: two fingers that slide."""

    joints: tuple[str, ...] = ()
    max_width: float = 0.0
    max_speed: float = 0.0
    max_force: float = 0.0


@dataclass(frozen=True, config=ConfigDict(extra="forbid"))
class OwnFacts:
    """The content of robot.yaml; the words are those of `RobotSpec`."""

    name: str
    joints: tuple[str, ...]
    home: _Joints
    velocity: _Joints
    acceleration: _Joints
    jerk: _Joints
    effort: _Joints
    source: str
    tcp_site: str = "tcp"
    flange: Triple = (0.0, 0.0, 0.0)
    gripper: OwnGripper = field(default_factory=OwnGripper)
    assumed: tuple[str, ...] = ()  # values that no source states: what a person has to look up or measure


def read_robot(folder: Path) -> tuple[RobotSpec, OwnFacts]:
    """The arm in `folder`.

    Raises:
      BadInput: a file is missing, is no YAML, or a value is missing, unknown or of another length.
    """
    path = folder / FACTS
    if not path.is_file() or not (folder / MODEL).is_file():
        got = "nothing" if not path.is_file() else f"no {MODEL}"
        raise BadInput(f"robot {folder}", got=got, expected=f"a folder with {FACTS} and {MODEL}")
    try:
        facts = TypeAdapter(OwnFacts).validate_python(yaml.safe_load(path.read_bytes()[:LARGEST]))
    except yaml.YAMLError as error:
        raise BadInput(f"{path}", got=str(error).splitlines()[0], expected="YAML") from error
    except ValidationError as error:
        fault = error.errors()[0]
        place = ".".join(map(str, fault["loc"]))
        raise BadInput(f"{path}: {place}", got=str(fault["input"])[:60], expected=fault["msg"]) from None
    if facts.name != folder.name:
        raise BadInput(f"{path}: name", got=facts.name, expected=f"that of its folder, {folder.name}")
    for name in ("home", "velocity", "acceleration", "jerk", "effort"):
        values = getattr(facts, name)
        if len(values) != len(facts.joints):
            raise BadInput(f"{path}: {name}", got=f"{len(values)} values", expected=f"{len(facts.joints)}, one a joint")
        if name != "home" and min(values, default=0.0) <= 0:
            raise BadInput(f"{path}: {name}", got=min(values, default=0.0), expected="more than 0")
    hand = facts.gripper
    gripper = GripperSpec(
        GripperKind.PARALLEL if hand.joints else GripperKind.NONE, hand.joints, hand.max_width, hand.max_speed,
        hand.max_force,
    )  # fmt: skip
    spec = RobotSpec(
        name=facts.name, mjcf=folder / MODEL, joints=facts.joints, tcp_site=facts.tcp_site, home=facts.home,
        velocity=facts.velocity, acceleration=facts.acceleration, jerk=facts.jerk, effort=facts.effort,
        gripper=gripper, source=facts.source, flange=facts.flange,
    )  # fmt: skip
    return spec, facts


def own_folders() -> dict[str, Path]:
    """Name → folder of the user's arms: those of ROBOLEARN_ROBOTS, and those of installed packages."""
    others = {name: Path(folder) for name, folder in _installed().items()}
    return others | {name: folder for name, folder in _named().items() if name not in shipped_names()}


def _named() -> dict[str, Path]:
    """Those of ROBOLEARN_ROBOTS alone."""
    top = os.environ.get(VARIABLE, "")
    found = sorted(Path(top).expanduser().glob(f"*/{FACTS}")) if top else []
    return {path.parent.name: path.parent for path in found}


@functools.cache
def _installed() -> dict[str, Path | str]:
    return load("robots", shipped_names(), _is_robot, lambda found: Path(found).name)


def _is_robot(found: object) -> bool:
    return isinstance(found, Path | str) and (Path(found) / FACTS).is_file()


@functools.cache
def shipped_names() -> frozenset[str]:
    """The names of our arms and contracts, which no other arm can have."""
    here = Path(__file__).parent
    arms = (path.stem for path in here.glob("*/*.xml") if path.stem == path.parent.name)
    return frozenset((*arms, *(path.stem for path in (here / "stations").rglob("*.yaml"))))


def assumed_of(robot: RobotSpec) -> tuple[str, ...]:
    """The values of `robot` that nobody has stated; of a shipped arm none. Raises `BadInput`: as `read_robot`."""
    folder = robot.mjcf.parent
    return read_robot(folder)[1].assumed if (folder / FACTS).is_file() else ()


def check_confirmed(robot: RobotSpec) -> None:
    """Warn of limits that nobody has stated.

    Raises:
      BadInput: nobody has confirmed what its contract guesses.
    """
    assumed = assumed_of(robot)
    if guessed := [line.removeprefix(GUESS) for line in assumed if line.startswith(GUESS)]:
        got = f"guesses in its contract: {'; '.join(guessed)}"
        hint = f"Correct {STATION}, then take these lines out of `assumed` in {robot.mjcf.parent / FACTS}"
        raise BadInput(f"{robot.name}, a real arm", got=got, expected="measured values", hint=hint)
    for line in assumed:
        log.warning("%s moves by what nobody has stated: %s", robot.name, line)


def own_robots() -> dict[str, RobotSpec]:
    """Name → arm of all the user's folders that can be read."""
    for name, folder in _named().items():
        if name in shipped_names():
            log.warning("%s is left out: the name %s is taken by robolearn", folder, name)
        elif name in _installed():
            log.warning("%s takes the place of the arm of %s", folder, package_of("robots", name))
    found = {}
    for name, folder in own_folders().items():
        try:
            found[name] = read_robot(folder)[0]
        except (BadInput, OSError) as error:
            log.warning("%s is left out: %s", folder, error)
    return found


def own_stations() -> dict[str, Path]:
    """Name → contract of the user's arms."""
    return {name: path for name, folder in own_folders().items() if (path := folder / STATION).is_file()}
