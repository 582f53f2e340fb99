"""A way of an arm that is known before: where it begins, and what is sent of it, tick by tick."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from robots.stations import AnyContract

Array = NDArray[np.float64]
TAIL_S = 0.5  # after its end: what was commanded last is still on its way
ELSEWHERE = 0.02  # of the first target: the arm has moved since the motion was made for it [rad]


def way_from(start: Array, targets: Array, contract: AnyContract, speed: float = 0.1) -> Array:
    """(R + T, n) from where the arm is to the first of `targets` (T, n) at that share of its speed, a second there,
    then the targets; a row each period of the stream."""
    period, velocity = 1.0 / contract.stream_hz, contract.limits.velocity
    seconds = max(1.0, float(np.max(np.abs(targets[0] - start) / (speed * velocity))))
    share = np.clip(np.arange(0.0, seconds + 1.0, period) / seconds, 0.0, 1.0)
    return np.concatenate([start + share[:, None] * (targets[0] - start), targets])


@dataclass
class PlayedMotion:
    """A motion that begins when the arm is armed, and what is kept of it.

    Attributes:
      way: (T, n) targets [rad], one each `period` [s]; (T, n + 1) with the gripper's opening [m] last.
      state: waiting, moving, done or stopped; `reason` says why.
      sent, seen: (stamp [s], (n,) positions [rad]) of set-points and of joint states, while it moves.
    """

    way: Array
    period: float
    state: str = "waiting"
    reason: str = ""
    sent: list[tuple[float, Array]] = field(default_factory=list)
    seen: list[tuple[float, Array]] = field(default_factory=list)
    _arming: str = ""
    _next: int = 0
    _q: Array | None = None

    @property
    def done(self) -> int:
        """Targets that were sent, of the way."""
        return min(self._next, len(self.way))

    @property
    def ready(self) -> bool:
        """The arm may be armed: where it is has been heard."""
        return self.state == "waiting" and self._q is not None

    @property
    def over(self) -> bool:
        """It came to its end, and the arm is disarmed."""
        return self.state == "done" and not self._arming

    def safety(self, arming: str) -> None:
        """The safety node's state: which arming this is, or empty while it is not armed."""
        if arming == self._arming:
            return
        self._arming = arming
        if self.state == "moving":
            self.stop("the safety filter has stopped the arm")
        elif arming and self.state == "waiting":
            far = np.inf if self._q is None else float(np.abs(self._q - self.way[0, : len(self._q)]).max())
            if far > ELSEWHERE:
                self.stop(f"the arm is {far:.3f} rad from where the motion begins: it has moved since")
            else:
                self.state = "moving"

    def joint_state(self, stamp: float, q: Array) -> None:
        """A joint state of the arm (n,) [rad], by its own stamp [s]."""
        self._q = q
        self._keep(self.seen, stamp, q)

    def set_point(self, stamp: float, q: Array) -> None:
        """A set-point that the safety node has sent to the controller, when [s]."""
        self._keep(self.sent, stamp, q)

    def _keep(self, kept: list[tuple[float, Array]], stamp: float, q: Array) -> None:
        if self.state == "moving" and (not kept or stamp > kept[-1][0]):
            kept.append((stamp, q))

    def stop(self, reason: str) -> None:
        """End it before its time."""
        if self.state in ("waiting", "moving"):
            self.state, self.reason = "stopped", reason

    def target(self) -> Array | None:
        """(n,) the target of this period, None where there is none: the last one is held until the arm is disarmed."""
        if not self._arming or self.state not in ("moving", "done"):
            return None
        k, self._next = self._next, self._next + 1
        if self.state == "moving" and self._next >= len(self.way) + TAIL_S / self.period:
            self.state = "done"
        return self.way[min(k, len(self.way) - 1)]
