"""A robot folder: model, facts and contract of an arm, made of somebody's model file."""

from __future__ import annotations

import tempfile
from dataclasses import dataclass
from pathlib import Path

import mujoco
import numpy as np
import yaml

from robolearn.core.errors import BadInput
from robolearn.io.atomic import write_text
from robots.chain import Chain
from robots.making.contract import contract_text, driver_gripper, guesses
from robots.making.home import TCP_AT_HOME, find_home
from robots.making.model import (
    TCP,
    add_servos,
    keep_gripper,
    mount_gripper,
    own_gripper,
    prepare_joints,
    strip,
    write_model,
)
from robots.making.source import path_to, read_source
from robots.own import FACTS, MODEL, STATION
from robots.spec import Triple

VELOCITY, ACCELERATION, JERK = 1.0, 5.0, 500.0  # where nobody states them [rad/s, rad/s², rad/s³]
FINGER_SPEED, GRASP_FORCE = 0.05, 40.0  # of the gripper that is mounted [m/s, N]


@dataclass(frozen=True)
class RobotRequest:
    """Ingredients of a robot folder.

    Attributes:
      source: URDF or MJCF.
      name: of the arm and its folder.
      joints, tip: see `read_source`.
      velocity, effort, acceleration: of each joint, in place of what the file states; one value counts for all.
      tcp_site: a site or body of the model between its own two fingers, which are kept; empty: a gripper is mounted.
      width: opening of the gripper that is mounted [m].
      home_tcp: where the tcp is at home [m].
    """

    source: Path
    name: str
    joints: tuple[str, ...] = ()
    tip: str = ""
    velocity: tuple[float, ...] = ()
    effort: tuple[float, ...] = ()
    acceleration: tuple[float, ...] = ()
    tcp_site: str = ""
    width: float = 0.085
    home_tcp: Triple = TCP_AT_HOME


@dataclass(frozen=True)
class MadeRobot:
    """A robot folder that was made.

    Attributes:
      folder: where it lies.
      joints: base to tip.
      assumed: values that nobody stated, in words: to be looked up or measured.
      left_out: what of the source is not in the model.
    """

    folder: Path
    joints: tuple[str, ...]
    assumed: tuple[str, ...]
    left_out: tuple[str, ...]


def make_robot(wanted: RobotRequest, folder: Path) -> MadeRobot:
    """Make the robot folder `folder`, which appears only when it is whole.

    Raises:
      BadInput: `folder` is there, the source is no arm, or it does not reach its home.
    """
    if not wanted.name.isidentifier():
        raise BadInput("name of a robot", got=wanted.name, expected="letters, digits and _")
    if folder.exists():
        raise BadInput(f"robot {folder}", got="a folder that is there", expected="a new one")
    if not 0.01 <= wanted.width <= 0.2:
        raise BadInput("width of the gripper", got=wanted.width, expected="0.01 to 0.2 m")
    source = read_source(wanted.source, wanted.joints, wanted.tip)
    assumed: list[str] = []
    velocity = _limit("velocity", wanted.velocity, source.joints, source.velocity, VELOCITY, "rad/s", assumed)
    effort = _limit("effort", wanted.effort, source.joints, source.effort, None, "Nm", assumed)
    acceleration = _limit("acceleration", wanted.acceleration, source.joints, {}, ACCELERATION, "rad/s²", assumed)
    assumed.append(f"jerk: {JERK:g} rad/s³ of every joint")
    fingers, width, site = ("", ""), wanted.width, wanted.tcp_site or "tcp"
    if wanted.tcp_site:
        fingers, width = own_gripper(source, site)
    driven = driver_gripper(source, fingers if wanted.tcp_site else ())
    left_out = strip(source, fingers if wanted.tcp_site else (), wanted.tcp_site)
    free = prepare_joints(source)
    if free:
        assumed.append(f"range: ±360° of {', '.join(free)}, which have none in the source")
    if wanted.tcp_site:
        keep_gripper(source, fingers, site)
        assumed.append(f"gripper: {FINGER_SPEED:g} m/s of a finger, {GRASP_FORCE:g} N")
    else:
        fingers = mount_gripper(source, wanted.name, width)
        assumed.append(f"gripper: a parallel one, {1e3 * width:g} mm, its tcp {TCP:g} m before {source.tip}")
    assumed += guesses(driven)
    flange = _flange(source.spec.body(source.tip), source.spec.joint(source.joints[-1]).parent)
    folder.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=".robot-", dir=folder.parent) as place:
        made = Path(place) / folder.name
        path = write_model(source, made)
        chain = Chain.from_mjcf(path, source.joints, site)
        home = find_home(mujoco.MjModel.from_xml_path(str(path)), chain, source.joints, wanted.home_tcp)
        add_servos(source, dict(zip(source.joints, effort, strict=True)), fingers, home)
        write_model(source, made)
        facts = {
            "name": wanted.name,
            "joints": list(source.joints),
            "home": home.tolist(),
            "velocity": velocity,
            "acceleration": acceleration,
            "jerk": [JERK] * len(velocity),
            "effort": effort,
            "tcp_site": site,
            "flange": flange,
            "gripper": {"joints": list(fingers), "max_width": width, "max_speed": FINGER_SPEED,
                        "max_force": GRASP_FORCE},
            "source": f"{wanted.source.name}, by robolearn robots new",
            "assumed": assumed,
        }  # fmt: skip
        head = f"# Facts of {wanted.name}, for {MODEL} beside this file. `assumed` is what nobody has stated yet.\n"
        write_text(made / FACTS, head + yaml.safe_dump(facts, sort_keys=False, allow_unicode=True, width=118))
        write_text(made / STATION, contract_text(wanted.name, source.joints, driven))
        made.rename(folder)
    return MadeRobot(folder, source.joints, tuple(assumed), tuple(left_out))


def _limit(
    what: str,
    given: tuple[float, ...],
    joints: tuple[str, ...],
    stated: dict[str, float],
    usual: float | None,
    unit: str,
    assumed: list[str],
) -> list[float]:
    """A limit of each joint: as given, as the source states it, or the usual one, which is noted in `assumed`."""
    if len(given) == 1:
        given *= len(joints)
    if given and (len(given) != len(joints) or min(given) <= 0):
        raise BadInput(
            f"--{what}", got=" ".join(map(str, given)), expected=f"1 or {len(joints)} values above 0 [{unit}]"
        )
    unknown = [name for name in joints if name not in stated]
    if not given and unknown and usual is None:
        raise BadInput(f"--{what}", got=f"none, and none in the model for {', '.join(unknown)}", expected=f"[{unit}]")
    if not given and unknown:
        assumed.append(
            f"{what}: {usual:g} {unit} of {', '.join(unknown) if len(unknown) < len(joints) else 'every joint'}"
        )
    return list(given) if given else [stated.get(name, usual or 0.0) for name in joints]


def _flange(tip: mujoco.MjsBody, last: mujoco.MjsBody) -> list[float]:
    """Origin of the tip in the frame of the last link [m]."""
    at, names = np.zeros(3), [body.name for body in path_to(tip)]
    for name in reversed(names[names.index(last.name) + 1 :]):
        body = next(one for one in path_to(tip) if one.name == name)
        turned = np.empty(3)
        mujoco.mju_rotVecQuat(turned, at, np.array(body.quat))
        at = np.array(body.pos) + turned
    return np.round(at, 9).tolist()
