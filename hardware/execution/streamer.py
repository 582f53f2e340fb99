"""From action chunks to joint set-points as time goes on, or a stop with its reason; without ROS, on an injected clock.

An action becomes set-points when its control step begins, from where the arm is *then*, by the very control that the
simulator uses. In between the set-point is repeated. When the chunk runs out, the policy is gone, joint states are
old or a chunk is refused, the streamer sends a stop, and repeats it until the arm is not armed any more.
"""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from hardware.execution.action_chunk_buffer import ActionChunkBuffer, ChunkRefused
from hardware.execution.setpoints import SetPoints
from hardware.observing.latency import Latencies
from hardware.observing.observer import JointReader
from robots.stations import Contract

log = logging.getLogger(__name__)

SILENCE_S = 0.12  # of the policy's heartbeat, 50 times a second; with the braking, a quarter of a second to rest


@dataclass(frozen=True, eq=False)
class StreamTarget:
    """One set-point per joint and the gripper's opening.

    Attributes:
      positions: (n + 1,) [rad], [m].
      stamp_ns: of the observation behind it.
    """

    positions: NDArray[np.float64]
    stamp_ns: int


@dataclass(frozen=True)
class StreamStop:
    """A stop, with its reason for the operator."""

    reason: str


class Streamer:
    """Streams action chunks.

    Args:
      contract: the station.
      send: takes every target and every stop, at once.
      grace_s: see `ActionChunkBuffer`.
      freeze_steps, blend: see `ActionChunkBuffer`.
      clock: steady time [s].
      wall: the clock of observation stamps [s].

    Attributes:
      arming: which arming this is; empty: not armed.
      stopped: why the streamer has stopped since the arm was armed, or empty.
      last_stop: the newest reason of all.
      names: (n + 1,) of a target's components.
    """

    def __init__(
        self,
        contract: Contract,
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
        self._period = 1.0 / contract.control_hz
        self.stream = ActionChunkBuffer(
            self._set_points.spec.names,
            self._period,
            grace_s=grace_s,
            freeze=freeze_steps,
            blend=blend,
            relative=self._set_points.relative,
            clock=clock,
        )
        self.joints = JointReader(contract, clock)
        self.arming = self.stopped = self.last_stop = ""
        self._send, self._clock, self._wall = send, clock, wall
        self._armed_at = 0.0  # by the clock of stamps
        self._alive_at = math.inf  # of the policy's last heartbeat; infinite: none since the arm was armed
        self._step: tuple[float, int] = (0.0, -1)
        self._target = np.zeros(len(self.names))
        self._observed_ns = 0  # stamp of the chunk that runs
        self._arrival = Latencies()
        self._first = Latencies()
        self._chunks = self._refusals = 0

    # --- what arrives ----------------------------------------------------------------------------------------

    def safety(self, arming: str) -> None:
        """The safety filter's state: which arming this is, or empty while it is not armed."""
        if arming == self.arming:
            return
        self.stream.clear("" if arming else "not armed")
        self.stopped, self._step = "", (0.0, -1)
        self._armed_at, self._alive_at = self._wall(), math.inf
        self.arming = arming

    def joint_state(self, names: Sequence[str], positions: ArrayLike, stamp: float) -> None:
        """A joint state, see `JointReader.update`."""
        self.joints.update(names, np.asarray(positions, dtype=np.float64), stamp)

    def chunk(
        self, stamp_ns: int, names: Sequence[str], actions: Any, times: NDArray[np.float64], sender: object = None
    ) -> None:
        """An action chunk, see `ActionChunkBuffer.accept`; one that is refused is a stop."""
        if not self.arming or self.stopped:
            return
        stamp = 1e-9 * stamp_ns
        if 0 < stamp < self._armed_at - self._period and not self.stream.running:
            return  # still on its way from before the arm was armed
        try:
            self.stream.accept(stamp, self._wall(), names, actions, times, sender=sender)
        except ChunkRefused as error:
            self._refusals += 1
            self.halt(str(error))
            return
        self._chunks += 1
        self._observed_ns = stamp_ns
        self._arrival.add(self.stream.latency_s)

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
        if not self.stream.running:
            return  # no chunk yet; the arm holds still
        if self._clock() - self._alive_at > SILENCE_S:
            self.halt(f"the policy node is gone (no heartbeat for {1e3 * SILENCE_S:.0f} ms)")
            return
        if problem := self.joints.problem():
            self.halt(problem)
            return
        step = self.stream.step()
        if step is None:
            self.halt(self.stream.reason)
            return
        if not step.held and (step.stamp, step.index) != self._step:
            assert self.joints.q is not None
            fresh = step.stamp != self._step[0]
            self._step = (step.stamp, step.index)
            self._target = self._set_points.target(self.joints.q, step.action)
            if fresh:
                self._first.add(self._wall() - step.stamp)
        self._send(StreamTarget(self._target, self._observed_ns))

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
        reason = self.joints.problem()
        return {
            "ready": not reason,
            "reason": reason,
            "armed": bool(self.arming),
            "stopped": self.stopped,
            "last_stop": self.last_stop,
            "chunks": self._chunks,
            "refused": self._refusals,
            "arrival_ms": self._arrival.summary_ms(),
            "latency_ms": self._first.summary_ms(),
        }
