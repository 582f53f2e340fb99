"""What is judged when the arm is armed: the order of joint states, and where the set-point begins."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import ArrayLike

from hardware.safety import checks
from hardware.safety.checks import Refused
from hardware.safety.geometry import Geometry
from robolearn.core.errors import BadInput

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
    lower: list[float],
    upper: list[float],
    geometry: Geometry,
) -> list[float]:
    """(n,) where the set-point begins [rad]: where the arm is measured, inside its limits.

    The last command is no place to begin: whether a controller still holds it is not known.

    Args:
      joints: n names.
      measured: (n,) [rad].
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
    return checks.clamped(measured, lower, upper)
