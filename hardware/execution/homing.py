"""The way home between episodes: the gripper opens where the arm is, the tool rises, the arm goes to its home.

In a deployment the streamer plays it. While an operator records or teaches it is made in a thread of its own, which
takes a few tenths of a second, and followed tick by tick, until a hand moves the device.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import Future

import numpy as np
from numpy.typing import NDArray

from hardware.calibration.motion import PerfectArm, drive
from hardware.execution.played_motion import ELSEWHERE, way_from
from robolearn.core import BadInput, RobolearnError, check_choice
from robots.ik import solve
from robots.stations import AnyContract, Contract

Array = NDArray[np.float64]
OPENING_S = 1.0  # for the gripper, before anything moves
RISE_M = 0.05  # of the tcp, so that the fingers leave what they held
SPEED = 0.2  # share of the joints' speed
RESETS = ("person", "motion")


def goes_home(
    reset: str,
    contract: AnyContract,
    *,
    what: str = "--reset",
    instead: str = "a real arm",
    others: tuple[str, ...] = (),
) -> bool:
    """True where the arm of `contract` goes home by itself between episodes: one of `RESETS` says who brings it there,
    or one of `others`.

    Raises:
      BadInput: `reset` is none of them, or the arm is simulated and begins anew by itself; `instead` is offered.
    """
    check_choice(what, reset, (*RESETS, *others))
    if reset == "motion" and contract.simulated:
        raise BadInput(what, got=f"motion on {contract.name}, which begins anew", expected=f"person, or {instead}")
    return reset == "motion"


def way_home(contract: AnyContract, q: Array) -> Array:
    """(T, n + arms) targets of the joints [rad] and of each gripper's opening [m] from the posture `q` (n,) home, one a
    period of the stream. A tool rises no higher than the workspace; two arms go side by side.

    Raises:
      RobolearnError: the station's safety filter does not let it pass; its reason.
    """
    home, arms = np.array(contract.robot.home), contract.arms.values()
    risen = np.concatenate([_risen(arm, q[at]) for arm, at in zip(arms, contract.robot.slices, strict=True)])
    still = np.tile(q, (round(OPENING_S * contract.stream_hz), 1))
    ways = (still, way_from(q, risen[None], contract, SPEED), way_from(risen, home[None], contract, SPEED))
    way = np.concatenate(ways)
    drive(PerfectArm(contract.joints, q), contract, way)
    openings = [arm.limits.gripper_max for arm in arms]
    return np.concatenate([way, np.tile(openings, (len(way), 1))], axis=1)


def _risen(arm: Contract, q: Array) -> Array:
    """(n,) joints [rad] of one arm at `q` (n,) with its tool raised."""
    chain, workspace = arm.robot.chain, arm.limits.workspace
    pos, rot = chain.forward(q[None])
    above = pos.copy()
    above[0, 2] += RISE_M
    if workspace is not None:
        above[0, 2] = max(pos[0, 2], min(above[0, 2], workspace[1, 2] - 0.01))
    return solve(chain, q[None], above, rot, rest=np.array(arm.robot.home))[0]


def in_thread(work: Callable[[], Array]) -> Future[Array]:
    """`work`, done in a thread of its own, which keeps no program from ending."""
    future: Future[Array] = Future()

    def run() -> None:
        try:
            future.set_result(work())
        except BaseException as error:
            future.set_exception(error)

    threading.Thread(target=run, name="homing", daemon=True).start()
    return future


class Homecoming:
    """One way home after the other.

    Attributes:
      reason: why the last one was not made, or not to its end; or nothing.
    """

    def __init__(self, contract: AnyContract) -> None:
        self._contract = contract
        self._made: Future[Array] | None = None
        self._way: Array | None = None
        self._next = 0
        self.reason = ""

    @property
    def going(self) -> bool:
        """True from `begin` until the arm is home, or it was cancelled."""
        return self._made is not None or self._way is not None

    def begin(self, q: Array) -> None:
        """Make the way home from the posture `q` (n,) [rad], and then follow it."""
        self.cancel()
        start = q.copy()
        self._made = in_thread(lambda: way_home(self._contract, start))

    def cancel(self, reason: str = "") -> None:
        """Follow it no further."""
        self._made, self._way, self._next, self.reason = None, None, 0, reason

    def target(self, q: Array) -> Array | None:
        """(n + arms,) the target of this period [rad], [m] for an arm at `q` (n,); None where there is none."""
        if self._made is not None and self._made.done():
            made, self._made = self._made, None
            try:
                self._way = made.result()
            except RobolearnError as error:
                self.cancel(f"the arm does not go home: {error}")
                return None
            if np.abs(q - self._way[0, : len(q)]).max() > ELSEWHERE:
                self.cancel("the arm does not go home: it has moved since")
                return None
        if self._way is None:
            return None
        target, self._next = self._way[self._next], self._next + 1
        if self._next >= len(self._way):
            self.cancel()
        return target
