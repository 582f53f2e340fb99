"""Interfaces, observations of an arm at home, and a clock that a test turns."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from numpy.typing import NDArray

from robolearn.core import Interface
from robots import PANDA, SO101, RobotSpec, make_control
from robots.proprio import proprio, proprio_spec

MakeObservation = Callable[..., dict[str, NDArray]]


class Clock:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


def interface_of(robot: RobotSpec, kind: str) -> Interface:
    return Interface({"proprio": proprio_spec(robot)}, make_control(kind, robot).spec, 20.0, robot.name, kind)


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def interface() -> Interface:
    return interface_of(PANDA, "tcp_delta")


@pytest.fixture
def panda_joints() -> Interface:
    return interface_of(PANDA, "joint_position")


@pytest.fixture
def so101_joints() -> Interface:
    return interface_of(SO101, "joint_position")


@pytest.fixture
def observe() -> MakeObservation:
    def make(robot: RobotSpec = PANDA, q: object = None, opening: float = 1.0) -> dict[str, NDArray]:
        joints = np.asarray(robot.home if q is None else q, dtype=np.float64)[None]
        pos, rot = robot.chain.forward(joints)
        return {"proprio": proprio(joints, np.array([opening * robot.gripper.max_width]), pos, rot)[0]}

    return make
