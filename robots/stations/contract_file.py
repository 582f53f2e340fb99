"""Reads contract files: every mistake is one line that names the file, the place and the nearest right word.

The shipped ones lie beside this module; `load_contract` takes their names or the path of your own. The schema of one
section is in `robots.stations.schema`; here is what several sections have to agree on.
"""

from __future__ import annotations

from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import numpy as np
from pydantic import ValidationError

from robolearn.core.errors import BadInput
from robots import ROBOTS
from robots.limits import Limits
from robots.obstacles import Box, Obstacle, Plane
from robots.spec import GripperKind, RobotSpec
from robots.stations.condition import Condition
from robots.stations.contract import Camera, ContactSensing, Contract, Frames, Gripper, GripperAction, Servos, Topic
from robots.stations.message_types import TRAJECTORY
from robots.stations.schema import (
    PER_JOINT,
    SHARES,
    CameraSection,
    ConditionSection,
    ContactSection,
    ContractSection,
    LimitsSection,
    RobotKey,
    ToolSection,
    TopicSection,
    bad_input,
)
from robots.stations.schema_gripper import GripperSection
from robots.stations.strict_yaml import read_yaml
from robots.tool import Tool

CONTRACTS = Path(__file__).parent


def contract_names() -> tuple[str, ...]:
    """The contracts that come with the package."""
    return tuple(sorted(path.stem for path in CONTRACTS.glob("*.yaml")))


def load_contract(name_or_path: str | Path, namespace: str = "") -> Contract:
    """The contract called `name_or_path`, or in that file.

    Args:
      name_or_path: of the file.
      namespace: ``"/left"``: where relative topics are, unless the contract says it itself.

    Raises:
      BadInput: there is no such contract, or it breaks the schema; the message names the file, the place in it, what
        was found and what was expected.
    """
    shipped = CONTRACTS / f"{name_or_path}.yaml"
    path = shipped if str(name_or_path) in contract_names() else Path(name_or_path).expanduser()
    if not path.is_file():
        raise BadInput("contract", got=name_or_path, available=(*contract_names(), "<path>.yaml"))
    data = read_yaml(path)
    try:
        robot = ROBOTS[RobotKey.model_validate(data).robot]
        section = ContractSection.model_validate(data, context={"robot": robot})
    except ValidationError as error:
        raise bad_input(error, path.name) from error
    return _contract(section, robot, path, section.namespace or namespace)


def _contract(section: ContractSection, robot: RobotSpec, path: Path, namespace: str) -> Contract:
    """The contract of a checked file; `BadInput` where its sections do not fit together."""
    if section.tool is not None:
        robot = replace(robot, tool=_tool(section.tool, path.name))
    gripper_joints, gripper_range, gripper = _gripper(section.gripper, robot, path.name)
    states = section.gripper.states if section.gripper is not None else None
    contract = Contract(
        name=section.name or path.stem,
        robot=robot,
        action_kind=section.action_kind,
        control_hz=section.control_hz,
        stream_hz=section.stream_hz,
        joints=tuple(section.joints),
        joint_states=_topic(section.joint_states),
        command=_topic(section.command),
        horizon_s=section.command.horizon_s,
        posture=_topic(section.command.posture) if section.command.posture is not None else None,
        gripper_joints=gripper_joints,
        gripper_range=gripper_range,
        gripper=gripper,
        gripper_states=_topic(states) if states is not None else None,
        gripper_in_command=section.gripper is not None and section.gripper.in_command,
        servos=Servos(**section.servos.model_dump()) if section.servos is not None else None,
        driver=section.driver or "",
        conditions=tuple(_condition(name, one) for name, one in (section.conditions or {}).items()),
        objects=_topic(section.objects) if section.objects is not None else None,
        contact=_contact(section.contact) if section.contact is not None else None,
        cameras={name: _camera(camera) for name, camera in (section.cameras or {}).items()},
        limits=_limits(section.limits, robot, path.name),
        namespace=namespace,
        frames=Frames(**section.frames.model_dump()) if section.frames is not None else Frames(),
        simulated=section.simulated,
        path=str(path),
    )
    contract = _resolved(contract)
    _check_unique(contract, path.name)
    return contract


def _topic(section: TopicSection) -> Topic:
    return Topic(section.topic, section.type, section.max_age_s)


def _contact(section: ContactSection) -> ContactSensing:
    most = section.max_torque or [section.max_force or 0.0, section.max_moment or 0.0]
    return ContactSensing(section.topic, section.type, section.max_age_s, tuple(most), section.gravity)


def _condition(name: str, section: ConditionSection) -> Condition:
    given = section.model_dump(exclude_none=True)
    return Condition(name, **{**given, "allowed": tuple(given.get("allowed", ()))})


def _camera(section: CameraSection) -> Camera:
    return section.camera()


def _tool(section: ToolSection, file: str) -> Tool:
    try:
        return section.tool()
    except BadInput as error:
        raise BadInput(f"{file}: {error}") from error


def _resolved(contract: Contract) -> Contract:
    """The contract with absolute topics: relative ones are those of its namespace."""

    def absolute(name: str) -> str:
        return name if name.startswith("/") or not name else f"{contract.namespace}/{name}"

    def resolve(value: Any) -> Any:
        if isinstance(value, Camera):
            return replace(value, topic=absolute(value.topic), info=absolute(value.info))
        if isinstance(value, Gripper) and value.action is not None:
            action = replace(value.action, name=absolute(value.action.name))
            return replace(value, topic=absolute(value.topic), action=action)
        if isinstance(value, Topic):
            return replace(value, topic=absolute(value.topic))
        return value

    changed = {field.name: resolve(getattr(contract, field.name)) for field in fields(contract)}
    changed["cameras"] = {name: resolve(camera) for name, camera in contract.cameras.items()}
    changed["conditions"] = tuple(replace(c, topic=absolute(c.topic)) for c in contract.conditions)
    return replace(contract, **changed)


def _gripper(
    section: GripperSection | None, robot: RobotSpec, file: str
) -> tuple[tuple[str, ...], tuple[float, float], Gripper | None]:
    closed, opened = robot.gripper.joint_range
    if section is None:
        return (), (closed, opened), None
    if robot.gripper.kind is GripperKind.NONE:
        raise BadInput(f"{file}: gripper", got=", ".join(section.joints), expected=f"none: {robot.name} has no gripper")
    closed = closed if section.closed is None else section.closed
    opened = opened if section.open is None else section.open
    if closed == opened:
        raise BadInput(f"{file}: gripper", got=f"{closed:g} for both", expected="two positions, closed and open")
    joints = tuple(section.joints)
    if section.topic is None or section.type is None:  # measured, not commanded
        return joints, (closed, opened), None
    unit = section.unit or ("joint" if section.type == TRAJECTORY else Gripper.unit)
    action = GripperAction(**section.action.model_dump()) if section.action is not None else None
    return joints, (closed, opened), Gripper(section.topic, section.type, section.max_age_s, unit, action)


def _limits(section: LimitsSection | None, robot: RobotSpec, file: str) -> Limits:
    own = Limits.of(robot)
    given: dict[str, Any] = {} if section is None else section.model_dump(exclude_none=True)
    for name in SHARES:
        if f"{name}_share" in given:
            given[name] = given.pop(f"{name}_share") * getattr(own, name)
    for name in PER_JOINT:
        if name in given:
            given[name] = np.array(given[name])
    for name in ("workspace", "held"):
        if name in given:
            given[name] = np.array([given[name]["lower"], given[name]["upper"]])
    try:
        if "obstacles" in given:
            given["obstacles"] = tuple(_obstacle(name, values) for name, values in given["obstacles"].items())
        return own.tightened(**given)
    except BadInput as error:
        raise BadInput(f"{file}: limits: {error}") from error


def _obstacle(name: str, values: dict[str, Any]) -> Obstacle:
    return Plane(name, **values) if "normal" in values else Box(name, **values)


def _check_unique(contract: Contract, file: str) -> None:
    """Refuse a joint or a topic that has two meanings."""
    both = set(contract.joints) & set(contract.gripper_joints)
    if both:
        raise BadInput(f"{file}: gripper.joints", got=min(both), expected="joints that are not the arm's")
    used: dict[str, str] = {}
    topics: dict[str, Topic | Condition | None] = {
        "joint_states": contract.joint_states,
        "command": contract.command,
        "command.posture": contract.posture,
        "gripper": contract.gripper,
        "gripper.states": contract.gripper_states,
        "objects": contract.objects,
        "contact": contract.contact,
        **{f"conditions.{one.name}": one for one in contract.conditions},
        **{f"cameras.{name}": camera for name, camera in contract.cameras.items()},
    }
    for where, topic in topics.items():
        if topic is None:
            continue
        # Raw torques stand beside the positions that gravity is taken for.
        if where == "contact" and contract.contact is not None and contract.contact.gravity:
            if topic.topic != contract.joint_states.topic:
                expected = f"with gravity the topic of the joint states: {contract.joint_states.topic}"
                raise BadInput(f"{file}: {where}.topic", got=topic.topic, expected=expected)
            continue
        if topic.topic in used:
            expected = f"another topic than {used[topic.topic]}'s"
            raise BadInput(f"{file}: {where}.topic", got=topic.topic, expected=expected)
        used[topic.topic] = where
