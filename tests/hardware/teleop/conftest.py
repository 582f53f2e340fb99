"""Interfaces, observations of an arm at home, a clock that a test turns, and two pages."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pytest
from numpy.typing import NDArray

from robolearn.core import Interface
from robots import PANDA, SO101, RobotSpec, make_control
from robots.spec import proprio, proprio_spec

if TYPE_CHECKING:
    from hardware.teleop.browser.device import Browser

sys.path.insert(0, str(Path(__file__).parent))

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


@pytest.fixture(scope="package")
def open_page() -> Iterator[Browser]:
    """A page on loopback."""
    from page_client import device

    page = device()
    page.open()
    yield page
    page.close()


@pytest.fixture(scope="package")
def closed_page(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    """A page as beyond loopback: with TLS and a token."""
    from page_client import device

    page = device(host="0.0.0.0", folder=tmp_path_factory.mktemp("config"))
    page.open()
    yield page
    page.close()
