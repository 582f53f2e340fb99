"""`RobotSpec`: the facts of one embodiment, in one frozen record."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from robots.chain import Chain


@dataclass(frozen=True)
class GripperSpec:
    """A parallel gripper.

    Attributes:
      joints: its joint names in the MJCF; each finger travels from 0 (closed) to `finger_travel` (open).
      finger_travel: stroke of one finger [m].
      max_speed: of one finger [m/s].
      max_force: grasp force [N].
      closed_open: joint positions when closed and when open, where the joints do not slide by `finger_travel`, as a
        revolute jaw's [rad].
    """

    joints: tuple[str, ...]
    finger_travel: float
    max_speed: float
    max_force: float
    closed_open: tuple[float, float] | None = None

    @property
    def joint_range(self) -> tuple[float, float]:
        """Position of each joint when closed and when open [m or rad]."""
        return self.closed_open or (0.0, self.finger_travel)

    @property
    def max_width(self) -> float:
        """Opening between the fingers [m]."""
        return 2.0 * self.finger_travel


@dataclass(frozen=True)
class RobotSpec:
    """Facts of an arm: model, joint names and limits, tcp, home pose.

    Attributes:
      name: the embodiment's name.
      mjcf: path of the model.
      joints: the n arm joints, base to tip.
      tcp_site: name of the site at the tool centre point (z forward, y along the finger travel).
      home: (n,) joint positions [rad].
      velocity: (n,) limits [rad/s].
      acceleration: (n,) limits [rad/s²].
      jerk: (n,) limits [rad/s³].
      effort: (n,) limits [N·m].
      gripper: the gripper.
      source: where the numbers come from.
    """

    name: str
    mjcf: Path
    joints: tuple[str, ...]
    tcp_site: str
    home: tuple[float, ...]
    velocity: tuple[float, ...]
    acceleration: tuple[float, ...]
    jerk: tuple[float, ...]
    effort: tuple[float, ...]
    gripper: GripperSpec
    source: str

    @cached_property
    def chain(self) -> Chain:
        """The kinematic chain base → tcp, read from the model (joint position limits included)."""
        return Chain.from_mjcf(self.mjcf, self.joints, self.tcp_site)

    @property
    def lower(self) -> NDArray[np.float64]:
        """(n,) lower joint position limits [rad]."""
        return self.chain.lower

    @property
    def upper(self) -> NDArray[np.float64]:
        """(n,) upper joint position limits [rad]."""
        return self.chain.upper
