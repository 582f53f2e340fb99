"""The opening of the gripper: inside its range, and no faster than it may go."""

from __future__ import annotations

from robots.limits import Limits


class Opening:
    """What is commanded to the gripper.

    Args:
      limits: `gripper_max` and `gripper_speed` of the station.
      period: between two steps [s].

    Attributes:
      goal: where it goes [m]; None before the first target.
      width: what is commanded now [m], or None.
    """

    def __init__(self, limits: Limits, period: float) -> None:
        self._most, self._step = limits.gripper_max, limits.gripper_speed * period
        self.begin()

    def begin(self, width: float | None = None) -> None:
        """The gripper stands at `width` [m], which is commanded until a target comes.

        None: where it stands is not known, and the first target is commanded at once.
        """
        self.goal: float | None = None
        self.width = None if width is None else min(max(width, 0.0), self._most)

    def toward(self, width: float) -> None:
        """From now on to `width` [m], as far as the gripper opens."""
        self.goal = min(max(width, 0.0), self._most)

    def step(self) -> None:
        """One period on."""
        if self.goal is not None:
            self.width = self.goal if self.width is None else self._nearer(self.width, self.goal)

    def _nearer(self, width: float, goal: float) -> float:
        return width + min(max(goal - width, -self._step), self._step)
