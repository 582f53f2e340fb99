"""Workspace layout: where the things of a task lie before an arm, as far away as it reaches.

The tasks are laid out for arms that reach 0.85 m. Before a smaller one the same layout is drawn together about the
base,

    (x, y)* = s (x, y),   tcp* = s (tcp at home + offset),   cameras* = s cameras

while things and heights keep their size: a cube is no smaller because the arm is.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from robots import RobotSpec
from robots.spec import GripperKind
from sim.embedded.task import Array, Start

HOME = (0.50, 0.0, 0.28)  # tcp of the arms that the tasks are laid out for, at home [m]


@dataclass(frozen=True)
class WorkspaceLayout:
    """A task's layout before an arm.

    Attributes:
      scale: s.
      tasks: those that the arm can do; None for all.
      why: the reason that it cannot do the others.
    """

    scale: float = 1.0
    tasks: frozenset[str] | None = None
    why: str = ""

    def home(self, own: Array) -> Array:
        """(3,) origin of the tcp's start offsets [m]; `own` (3,) for an arm of full size."""
        return own if self.scale == 1.0 else self.scale * np.array(HOME)

    def place(self, start: Start) -> Start:
        """A start of the layout, before this arm."""
        if self.scale == 1.0:
            return start
        nearer = np.array([self.scale, self.scale, 1.0, 1.0, 1.0, 1.0, 1.0])
        bodies = {name: pose * nearer for name, pose in start.bodies.items()}
        return replace(start, tcp_offset=self.scale * start.tcp_offset, bodies=bodies)


FULL = WorkspaceLayout()
LAYOUTS: dict[str, WorkspaceLayout] = {
    # It reaches 0.30 m where its gripper points down, and with its wrist at its limit no further up than 8 cm so.
    "so101": WorkspaceLayout(0.42, frozenset({"lift", "pick_place"}), why="A jaw that turns holds no peg upright")
}


def layout_of(robot: RobotSpec) -> WorkspaceLayout:
    """The layout of an arm."""
    return LAYOUTS.get(robot.name, FULL)


def fits(robot: RobotSpec, task: str) -> bool:
    """True where `robot` can do the embedded task called `task`."""
    if robot.gripper.kind is GripperKind.NONE:
        return False
    layout = LAYOUTS.get(robot.name)
    if layout is None:
        return robot.gripper.kind is GripperKind.PARALLEL and len(robot.joints) >= 6
    return layout.tasks is None or task in layout.tasks
