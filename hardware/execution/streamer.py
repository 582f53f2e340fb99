"""From action chunks to joint set-points as time goes on, or a stop with its reason; without ROS, on an injected clock.

An action becomes set-points when its control step begins, from where the arm is *then*, by the very control that the
simulator uses. In between the set-point is repeated. When the chunk runs out, the policy is gone or says that it cannot
go on, joint states are old or a chunk is refused, the streamer sends a stop, and repeats it until the arm is not armed
any more.
"""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from hardware.execution.chunk_buffer import SIM_GRACE_S, ActionChunkBuffer, ChunkRefused
from hardware.execution.played_motion import PlayedMotion
from hardware.execution.setpoints import SetPoints
from hardware.observing.clocks import MEND, SenderClock
from hardware.observing.joints import StationJoints
from hardware.observing.timing import Latencies
from robots.stations import AnyContract

Array = NDArray[np.float64]

log = logging.getLogger(__name__)

BEFORE_S, BEHIND_S = 0.002, 0.005  # of the time at which a chunk is expected: it is looked for
ON_ITS_WAY_S = 1.0  # so long after arming a chunk may come that was made before it
HOMING_S = 20.0  # from asking for it to arming
SILENCE_S = 0.12  # of the policy's heartbeat, 50 times a second; with the braking, a quarter of a second to rest


@dataclass(frozen=True, eq=False)
class StreamTarget:
    """One set-point per joint and each gripper's opening.

    Attributes:
      positions: (n + arms,) [rad], [m].
      stamp_ns: of the observation behind it.
      after_s: between that and now, when it is sent.
    """

    positions: NDArray[np.float64]
    stamp_ns: int
    after_s: float = 0.0


@dataclass(frozen=True)
class StreamStop:
    """A stop, with its reason for the operator."""

    reason: str


class Streamer:
    """Streams action chunks.

    Args:
      contract: the station.
      send: takes every target and every stop, at once.
      grace_s: see `ActionChunkBuffer`; None: of a simulated arm `SIM_GRACE_S`.
      freeze_steps, blend: see `ActionChunkBuffer`.
      clock: steady time [s].
      wall: the clock of observation stamps [s].

    Attributes:
      arming: which arming this is; empty: not armed.
      stopped: why the streamer has stopped since the arm was armed, or empty.
      last_stop: the newest reason of all.
      names: (n + arms,) of a target's components.
    """

    def __init__(
        self,
        contract: AnyContract,
        send: Callable[[StreamTarget | StreamStop], None],
        *,
        grace_s: float | None = None,
        freeze_steps: int = 0,
        blend: bool = True,
        clock: Callable[[], float] = time.monotonic,
        wall: Callable[[], float] = time.time,
    ) -> None:
        self._set_points = SetPoints(contract)
        self.names = self._set_points.names
        self._period, self._stream_hz = 1.0 / contract.control_hz, contract.stream_hz
        self.stream = ActionChunkBuffer(
            self._set_points.spec.names,
            self._period,
            grace_s=SIM_GRACE_S if grace_s is None and contract.simulated else grace_s,
            freeze=freeze_steps,
            blend=blend,
            relative=self._set_points.relative,
            clock=clock,
        )
        self.joints = StationJoints(contract, clock)
        self._sender_clocks = {
            name: SenderClock(arm.limits.state_timeout_s, clock, wall) for name, arm in contract.arms.items()
        }
        self.arming = self.stopped = self.last_stop = ""
        self._send, self._clock, self._wall = send, clock, wall
        self._armed_at = 0.0  # by the clock of stamps
        self._alive_at = math.inf  # of the policy's last heartbeat; infinite: none since the arm was armed
        self._begins = False  # the first action of a chunk is still to come
        self._target = np.zeros(len(self.names))
        self._idle = np.zeros(self._set_points.spec.size)
        self._observed_ns = 0  # stamp of the chunk that runs
        self._next_at = -math.inf  # when the next may come
        self._arrival = Latencies()
        self._first = Latencies()
        self._chunks = self._refusals = 0
        self._homing: PlayedMotion | None = None
        self._homings, self._homing_asked = 0, -math.inf

    # --- what arrives ----------------------------------------------------------------------------------------

    def safety(self, arming: str) -> None:
        """The safety filter's state: which arming this is, or empty while it is not armed."""
        if arming == self.arming:
            return
        self.stream.clear("" if arming else "not armed")
        self.stopped = ""
        self._armed_at, self._alive_at = self._wall(), math.inf
        self.arming = arming
        late = self._clock() - self._homing_asked > HOMING_S
        if arming and self._homing is not None and (late or self._homing.state != "waiting"):
            self._homing = None  # over, or asked for by one who is gone: now the policy moves the arm
        if self._homing is not None:
            self._homing.safety(arming)

    def joint_state(
        self, names: Sequence[str], positions: ArrayLike, stamp: float, publisher: Hashable = None, arm: str = ""
    ) -> None:
        """A joint state of `arm`, see `JointReader.update`."""
        if self.joints.update(names, np.asarray(positions, dtype=np.float64), stamp, publisher, arm):
            self._sender_clocks[arm].update(stamp)
            if self._homing is not None and (q := self.joints.q) is not None:
                self._homing.joint_state(stamp, q)

    def go_home(self, way: Array) -> int:
        """Follow `way` (T, n + 1), see `hardware.execution.homing`, when it is armed within `HOMING_S`, and no chunk
        until it is armed once more. Returns the number of this homing, which `status` has."""
        self._homing_asked = self._clock()
        self._homing = PlayedMotion(way, 1.0 / self._stream_hz)
        self._homings += 1
        return self._homings

    def _problem(self) -> str:
        """Problem of the joint states, or nothing."""
        clocks = ((reader, self._sender_clocks[name].problem()) for name, reader in self.joints.arms.items())
        found = (f"{reader.freshness.name}: {problem}" for reader, problem in clocks if problem)
        return self.joints.problem() or next(found, "")

    def chunk(
        self, stamp_ns: int, names: Sequence[str], actions: Any, times: NDArray[np.float64], sender: object = None
    ) -> bool:
        """An action chunk, see `ActionChunkBuffer.accept`; one that is refused is a stop. True where its first target
        is sent, at once."""
        if not self._led:
            return False
        stamp = 1e-9 * stamp_ns
        if self._was_before(stamp):
            if (since := self._wall() - self._armed_at) > ON_ITS_WAY_S:
                behind = self._armed_at - stamp
                reason = (
                    f"{since:.1f} s after arming, action chunks are of observations {behind:.2f} s before it: a clock"
                )
                self.halt(f"{reason} is behind this machine's; {MEND}")
            return False  # still on its way from before the arm was armed
        try:
            self.stream.accept(stamp, self._wall(), names, actions, times, sender=sender)
        except ChunkRefused as error:
            self._refusals += 1
            self.halt(str(error))
            return False
        self._chunks += 1
        self._next_at = self._clock() + 1e-9 * (stamp_ns - self._observed_ns)
        self._observed_ns, self._begins = stamp_ns, True
        self._arrival.add(self.stream.latency_s)
        self.tick()
        return True

    def policy_stop(self, stamp_ns: int, reason: str, sender: object = None) -> None:
        """The policy cannot go on after the observation of `stamp_ns`, because of `reason`: a stop at once."""
        if self._led and not self._was_before(1e-9 * stamp_ns):
            self.halt(self.stream.foreign(sender) or reason)

    @property
    def expects_chunk(self) -> bool:
        """True while the next chunk is about to come, as far apart from the last as that from the one before."""
        return -BEFORE_S <= self._clock() - self._next_at <= BEHIND_S

    def warm(self) -> None:
        """Compute a set-point for nothing: that of the chunk that is about to come is quicker then."""
        if (q := self.joints.q) is not None:
            self.stream.warm()
            self._set_points.target(q, self._idle)

    @property
    def _led(self) -> bool:
        """True while the policy leads the arm."""
        return bool(self.arming) and not self.stopped and self._homing is None

    def _was_before(self, stamp: float) -> bool:
        """True for an observation before this arming: what was made from it is still on its way."""
        return 0 < stamp < self._armed_at - self._period and not self.stream.running

    def heartbeat(self) -> None:
        """The policy's process runs."""
        self._alive_at = self._clock()

    def policies_alive(self, count: int, topic: str) -> None:
        """So many publishers of action chunks on `topic` are alive."""
        if not self.arming:
            return
        if count > 1:
            self.halt(f"{count} policies at once on {topic}")
        elif count == 0 and self.stream.running:
            self.halt("the policy node is gone (liveliness lost)")

    # --- what goes out ---------------------------------------------------------------------------------------

    def tick(self) -> None:
        """Send what is due now."""
        if not self.arming:
            return
        if self.stopped:
            self._send(StreamStop(self.stopped))
            return
        if self._homing is not None:
            if problem := self._problem():
                self.halt(problem)
            elif (target := self._homing.target()) is not None:
                self._send(StreamTarget(target, round(1e9 * self._wall())))
            return
        if not self.stream.running:
            return  # no chunk yet; the arm holds still
        if self._clock() - self._alive_at > SILENCE_S:
            self.halt(f"the policy node is gone (no heartbeat for {1e3 * SILENCE_S:.0f} ms)")
            return
        if problem := self._problem():
            self.halt(problem)
            return
        step = self.stream.step()
        if step is None:
            self.halt(self.stream.reason)
            return
        if step.fresh:
            q = self.joints.q
            assert q is not None
            self._target = self._set_points.target(q, step.action)
            if self._begins:
                self._begins = False
                self._first.add(self._wall() - 1e-9 * self._observed_ns)
        self._send(StreamTarget(self._target, self._observed_ns, self._wall() - 1e-9 * self._observed_ns))

    def halt(self, reason: str) -> None:
        """Stop, unless stopped already."""
        if self.stopped:
            return
        self.stopped = self.last_stop = reason
        self.stream.halt(reason)
        self._send(StreamStop(reason))
        log.warning("stop: %s", reason)

    def status(self) -> dict[str, Any]:
        """The content of the status topic."""
        reason = self._problem()
        return {
            "ready": not reason,
            "reason": reason,
            "armed": bool(self.arming),
            "stopped": self.stopped,
            "homing": [self._homings, self._homing.state if self._homing else ""],
            "last_stop": self.last_stop,
            "chunks": self._chunks,
            "refused": self._refusals,
            "arrival_ms": self._arrival.summary_ms(),
            "latency_ms": self._first.summary_ms(),
        }
