"""What is judged when the arm is armed: the order of joint states, and where the set-point begins."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import ArrayLike

from hardware.safety import checks
from hardware.safety.checks import Refused
from hardware.safety.geometry import Geometry
from robolearn.core.errors import BadInput

HOLD_TOLERANCE = 0.02  # [rad] the controller still holds our last command if the arm is measured so close to it
BOX_TOLERANCE = 2e-3  # [rad] beyond its limits a joint may be measured when arming: sensors, soft stops
WORKSPACE_TOLERANCE = 0.01  # [m] the same for the tcp and the workspace, and for the arm and obstacles


class JointOrder:
    """Picks the arm's joints out of joint states, whatever their order and company.

    Args:
      joints: n names, base to tip.

    Raises:
      BadInput: a name twice.
    """

    def __init__(self, joints: tuple[str, ...]) -> None:
        if len(set(joints)) != len(joints):
            raise BadInput("joints", got=", ".join(joints), expected="names that differ")
        self.joints = joints
        self._names: tuple[str, ...] | None = None  # of the last joint state
        self._index: list[int] = []

    def pick(self, names: tuple[str, ...], positions: ArrayLike) -> list[float]:
        """(n,) positions [rad] in the order of `joints`.

        Raises:
          Refused: a joint is missing, a value is not finite, or there are not as many values as names.
        """
        if names != self._names:
            missing = [name for name in self.joints if name not in names]
            if missing:
                raise Refused("joint state", f"joint state: no {', '.join(missing)}; got {', '.join(names)}")
            self._names, self._index = names, [names.index(name) for name in self.joints]
        values = np.asarray(positions, dtype=np.float64).ravel().tolist()
        if len(values) != len(names):
            raise Refused("joint state", f"joint state: {len(values)} positions for {len(names)} names")
        return checks.finite("joint state", [values[i] for i in self._index], stage="joint state")


def first_set_point(
    joints: Sequence[str],
    measured: list[float],
    held: Sequence[float] | None,
    lower: list[float],
    upper: list[float],
    geometry: Geometry,
) -> list[float]:
    """(n,) where the set-point begins [rad]: the last command if the arm still stands there, else where it is measured.

    Args:
      joints: n names.
      measured: (n,) [rad].
      held: (n,) the last command [rad], or None.
      lower, upper: (n,) limits [rad].
      geometry: of the workspace.

    Raises:
      Refused: the arm is measured outside its limits or the workspace.
    """
    for name, q, low, high in zip(joints, measured, lower, upper, strict=True):
        if not low - BOX_TOLERANCE <= q <= high + BOX_TOLERANCE:
            raise Refused("joint box", f"{name} is measured at {q:.4f} rad, limits {low:.4f} to {high:.4f} rad")
    outside, words = geometry.outside(np.array(measured))
    if outside > WORKSPACE_TOLERANCE:
        raise Refused("workspace", words)
    if held is not None and all(abs(h - q) <= HOLD_TOLERANCE for h, q in zip(held, measured, strict=True)):
        return list(held)
    return checks.clamped(measured, lower, upper)
