"""The arm in somebody's model file: its chain of hinges, its limits, and what is beside them.

MuJoCo reads both formats. Of a URDF it forgets velocity and effort limits, so these are read from the file itself.
Packages that its mesh paths name are looked for in the folders above it.
"""

from __future__ import annotations

import xml.etree.ElementTree as ElementTree
from dataclasses import dataclass, field
from pathlib import Path

import mujoco

from robolearn.core.errors import BadInput

_HINGE = mujoco.mjtJoint.mjJNT_HINGE


@dataclass(frozen=True)
class SourceModel:
    """A model as it was read.

    Attributes:
      spec: the model, with paths of its meshes that are absolute.
      joints: the arm's hinges, base to tip.
      tip: the body that a gripper is mounted on.
      velocity, effort: joint → limit [rad/s], [Nm], of those that the file states.
    """

    spec: mujoco.MjSpec
    joints: tuple[str, ...]
    tip: str
    velocity: dict[str, float] = field(default_factory=dict)
    effort: dict[str, float] = field(default_factory=dict)


def read_source(path: Path, joints: tuple[str, ...] = (), tip: str = "") -> SourceModel:
    """The arm in the URDF or MJCF at `path`.

    Args:
      joints: its hinges, base to tip; by default the longest chain of hinges in the file.
      tip: the body to mount the gripper on; by default the last one behind the last hinge.

    Raises:
      BadInput: MuJoCo cannot read it, there is no chain of at least five hinges, or no such joint or body.
    """
    if not path.is_file():
        raise BadInput("model", got=path, expected="a URDF or MJCF file")
    try:
        root = ElementTree.fromstring(path.read_bytes())
        if root.tag == "robot":
            spec = mujoco.MjSpec.from_string(_with_absolute_meshes(root, path))
        else:
            spec = mujoco.MjSpec.from_file(str(path))
            meshes = path.parent / spec.meshdir
            for mesh in spec.meshes:
                if mesh.file:
                    mesh.file = str((meshes / mesh.file).absolute())
            spec.meshdir = ""
        spec.copy().compile()
    except (ElementTree.ParseError, ValueError, OSError) as error:
        first = " ".join(str(error).split())[:160]
        raise BadInput(f"model {path.name}", got=first, expected="a URDF or MJCF that MuJoCo compiles") from error
    chain = _chain(spec, joints, path.name)
    velocity, effort = _limits(root, spec)
    return SourceModel(
        spec, tuple(joint.name for joint in chain), _tip(spec, chain[-1], tip, path.name), velocity, effort
    )


def path_to(body: mujoco.MjsBody) -> list[mujoco.MjsBody]:
    """The bodies from the world's first child to `body`."""
    found = []
    while body is not None and body.name != "world":
        found.append(body)
        body = body.parent
    return found[::-1]


def _chain(spec: mujoco.MjSpec, wanted: tuple[str, ...], file: str) -> list[mujoco.MjsJoint]:
    """The hinges of the arm; those `wanted`, or all on the way to the body behind most of them."""
    by_body: dict[str, list[mujoco.MjsJoint]] = {}
    for joint in spec.joints:
        by_body.setdefault(joint.parent.name, []).append(joint)
    ways = [[joint for body in path_to(end) for joint in by_body.get(body.name, [])] for end in spec.bodies[1:]]
    if wanted:
        ways = [way for way in ways if {joint.name for joint in way} >= set(wanted)]
        if not ways:
            available = [joint.name for joint in spec.joints]
            raise BadInput(f"{file}: --joints", got=" ".join(wanted), expected="one chain", available=available)
    way = max(ways, key=lambda way: sum(joint.type == _HINGE for joint in way), default=[])
    chain = [joint for joint in way if joint.type == _HINGE and (not wanted or joint.name in wanted)]
    if len(chain) < 5:
        got = ", ".join(joint.name for joint in chain) or "nothing"
        raise BadInput(f"{file}: chain of hinges", got=got, expected="five joints or more, base to tip")
    if wanted and tuple(joint.name for joint in chain) != wanted:
        raise BadInput(f"{file}: --joints", got=" ".join(wanted), expected=" ".join(joint.name for joint in chain))
    return chain


def _tip(spec: mujoco.MjSpec, last: mujoco.MjsJoint, wanted: str, file: str) -> str:
    """The body to mount a gripper on: the last that is fixed to the link of the `last` joint."""
    body = spec.body(wanted) if wanted else last.parent
    if body is None or last.parent.name not in {one.name for one in path_to(body)}:
        available = [one.name for one in spec.bodies if last.parent.name in {b.name for b in path_to(one)}]
        raise BadInput(f"{file}: --tip", got=wanted, expected=f"a body behind {last.name}", available=available)
    while not wanted:
        fixed = [child for child in body.bodies if not child.joints]
        if len(fixed) != 1:
            break
        body = fixed[0]
    return str(body.name)


def _limits(root: ElementTree.Element, spec: mujoco.MjSpec) -> tuple[dict[str, float], dict[str, float]]:
    """Velocity and effort limits that the file states: of a URDF's joints, or of an MJCF's motors and joints."""
    velocity, effort = {}, {}
    for joint in root.iter("joint") if root.tag == "robot" else ():
        limit = joint.find("limit")
        if limit is not None:
            for found, key in ((velocity, "velocity"), (effort, "effort")):
                if float(limit.get(key, 0.0)) > 0:
                    found[joint.get("name", "")] = float(limit.get(key, 0.0))
    for joint in spec.joints:
        if joint.actfrcrange[1] > 0:
            effort.setdefault(joint.name, float(joint.actfrcrange[1]))
    for actuator in spec.actuators:
        if actuator.trntype != mujoco.mjtTrn.mjTRN_JOINT:
            continue
        force = float(actuator.forcerange[1])
        if not force and actuator.gaintype == mujoco.mjtGain.mjGAIN_FIXED and not any(actuator.biasprm):
            force = float(actuator.ctrlrange[1] * actuator.gainprm[0] * abs(actuator.gear[0]))  # a motor
        if force > 0:
            effort.setdefault(actuator.target, force)
    return velocity, effort


def _with_absolute_meshes(root: ElementTree.Element, path: Path) -> str:
    """The URDF as text whose meshes MuJoCo finds; pictures of links are left out where they collide, too."""
    for mesh in root.iter("mesh"):
        name = mesh.get("filename", "")
        for scheme in ("package://", "file://", "model://"):
            name = name.removeprefix(scheme)
        places = [Path(name), *(parent / name for parent in path.absolute().parents)]
        found = next((place for place in places if place.is_file()), None)
        if found is None:
            raise ValueError(f"mesh {mesh.get('filename')} is not in the folders above {path.name}")
        mesh.set("filename", str(found.absolute()))
    for extension in root.findall("mujoco"):
        root.remove(extension)
    settings = {"strippath": "false", "fusestatic": "false", "discardvisual": "true", "balanceinertia": "true"}
    ElementTree.SubElement(ElementTree.SubElement(root, "mujoco"), "compiler", settings)
    return ElementTree.tostring(root, encoding="unicode")
