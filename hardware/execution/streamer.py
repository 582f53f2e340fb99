"""From action chunks to joint set-points as time goes on, or a stop with its reason; without ROS, on an injected clock.

An action becomes set-points when its control step begins, from where the arm is *then*, by the very control that the
simulator uses. In between the set-point is repeated. When the chunk runs out, the policy is gone, joint states are
old or a chunk is refused, the streamer sends a stop, and repeats it until the arm is not armed any more.

`ActionChunkBuffer` is `robots.chunk_execution` by the clock: whatever time the policy took, action i is never executed
at the time of action j. A chunk that is refused changes nothing. Wall-clock stamps are compared once, when a chunk
arrives; from then on only the steady clock counts, so that neither a jump of the time of day nor a frozen one prolongs
a chunk.
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

from hardware.execution.played_motion import PlayedMotion
from hardware.execution.setpoints import SetPoints
from hardware.observing.clocks import FUTURE_S, MEND, SenderClock
from hardware.observing.joints import StationJoints
from hardware.observing.timing import Latencies
from robolearn.core import BadInput, RobolearnError
from robots.chunk_execution import ActionParts, ChunkExecutor, ChunkStep
from robots.stations import AnyContract

Array = NDArray[np.float64]

SIM_GRACE_S = 0.15  # for the next chunk on a simulated arm, which may stand still for a moment: nothing falls


class ChunkRefused(RobolearnError):
    """A chunk that must not be executed; the message is the reason."""


class ActionChunkBuffer:
    """The chunk that is being executed, replaced by each newer one.

    Args:
      names: (Da,) of the action's components, in order.
      period_s: Δt [s].
      grace_s: how long the last action is held when the next chunk is late [s]; None: one Δt.
      freeze: f, steps that follow the old chunk entirely.
      blend: blend a chunk with the one before.
      relative: actions are displacements, but for the gripper's.
      longest: most actions in a chunk.
      clock: steady time [s].

    Attributes:
      reason: why there is no action now; empty while there is one.
      stamp: of the newest chunk's observation [s].
      latency_s: between the last chunk's observation and its arrival.
    """

    def __init__(
        self,
        names: Sequence[str],
        period_s: float,
        *,
        grace_s: float | None = None,
        freeze: int = 0,
        blend: bool = True,
        relative: bool = False,
        longest: int = 256,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        if not period_s > 0 or freeze < 0 or (grace_s is not None and grace_s < 0):
            raise BadInput(
                "action chunk buffer", got=(period_s, grace_s, freeze), expected="a positive period, the rest ≥ 0"
            )
        self.names = tuple(names)
        self.period_s = period_s
        self.grace_s = period_s if grace_s is None else grace_s
        self.longest = longest
        self.reason = "no action chunk yet"
        self.latency_s = math.nan
        self._clock = clock
        self._executor = ChunkExecutor(
            ActionParts.named(self.names, displacements=relative),
            period_s,
            grace=self.grace_s,
            freeze=freeze,
            blend=blend,
            kept=2 * longest,
        )
        self.stamp = -math.inf
        self._sender: object = None

    @property
    def running(self) -> bool:
        """True while there is a chunk that has not run out."""
        return self._executor.running

    def clear(self, reason: str = "no action chunk yet") -> None:
        """Empty the buffer: the chunk, the order of stamps and the sender."""
        self.halt(reason)
        self.stamp, self._sender = -math.inf, None

    def halt(self, reason: str) -> None:
        """Drop the chunk; later ones are still held to the order of stamps."""
        self._executor.clear()
        self.reason = reason

    def accept(
        self, stamp: float, wall: float, names: Sequence[str], actions: Any, times: NDArray, sender: object = None
    ) -> None:
        """Take a chunk, which replaces the one before from its first action on that has not elapsed.

        Args:
          stamp: of its observation [s], on the same clock as `wall`.
          wall: now [s].
          names: of the components.
          actions: (T, Da) in [-1, 1].
          times: (T,) each action's time after the observation [s]: 0, Δt, 2Δt, …
          sender: identifies the policy that sent it, comparable; the same from the first chunk on.

        Raises:
          ChunkRefused: it must not be executed. Nothing has changed.
        """
        now = self._clock()
        values = self._values(names, actions, times)
        age = wall - stamp
        if not math.isfinite(stamp) or stamp <= 0:
            raise ChunkRefused("action chunk without an observation stamp")
        if sender is not None and self._sender is not None and sender != self._sender:
            raise ChunkRefused("action chunks come from two policies at once")
        if age < -FUTURE_S:
            raise ChunkRefused(f"action chunk is stamped {-age:.3f} s in the future; {MEND}")
        age = max(age, 0.0)
        if age >= len(values) * self.period_s:
            raise ChunkRefused(
                f"action chunk is too late: {age:.3f} s after its observation, and it lasts "
                f"{len(values) * self.period_s:.3f} s"
            )
        if stamp <= self.stamp:
            raise ChunkRefused(
                f"action chunk is out of order: its observation is {self.stamp - stamp:.3f} s older than the last"
            )
        self._executor.put(values, now - age, now)
        self.stamp, self._sender, self.latency_s, self.reason = stamp, sender, age, ""

    def step(self) -> ChunkStep | None:
        """The action of this moment, or None: there is no chunk, or it ran out just now; which, is in `reason`."""
        if not self._executor.running:
            return None
        if (step := self._executor.step(self._clock())) is None:
            self.halt(f"action chunk ran out: the next is more than {1000 * self.grace_s:.0f} ms late")
        return step

    def _values(self, names: Sequence[str], actions: Any, times: NDArray) -> Array:
        if tuple(names) != self.names:
            raise ChunkRefused(f"action chunk names {', '.join(names) or 'nothing'}; expected {', '.join(self.names)}")
        if len(actions) == 0:
            raise ChunkRefused("action chunk is empty")
        if not isinstance(actions, np.ndarray) or actions.ndim != 2 or actions.shape[1] != len(self.names):
            raise ChunkRefused(f"action chunk has actions of the wrong length; expected {len(self.names)} each")
        if len(actions) > self.longest:
            raise ChunkRefused(f"action chunk has {len(actions)} actions; expected at most {self.longest}")
        if not np.isfinite(actions).all():
            raise ChunkRefused("action chunk is not finite")
        times = np.asarray(times, dtype=np.float64)
        if len(times) != len(actions) or not np.isfinite(times).all() or np.any(np.diff(times) <= 0):
            raise ChunkRefused("action chunk's times do not rise")
        if np.abs(times - np.arange(len(times)) * self.period_s).max() > 0.1 * self.period_s:
            raise ChunkRefused(f"action chunk's times are not 0, {self.period_s:g}, {2 * self.period_s:g} … s")
        return np.clip(actions.astype(np.float64), -1.0, 1.0)


log = logging.getLogger(__name__)

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
        self._observed_ns = 0  # stamp of the chunk that runs
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
    ) -> None:
        """An action chunk, see `ActionChunkBuffer.accept`; one that is refused is a stop. Its first target is sent at
        once."""
        if not self.arming or self.stopped or self._homing is not None:
            return
        stamp = 1e-9 * stamp_ns
        if 0 < stamp < self._armed_at - self._period and not self.stream.running:
            if (since := self._wall() - self._armed_at) > ON_ITS_WAY_S:
                behind = self._armed_at - stamp
                reason = (
                    f"{since:.1f} s after arming, action chunks are of observations {behind:.2f} s before it: a clock"
                )
                self.halt(f"{reason} is behind this machine's; {MEND}")
            return  # still on its way from before the arm was armed
        try:
            self.stream.accept(stamp, self._wall(), names, actions, times, sender=sender)
        except ChunkRefused as error:
            self._refusals += 1
            self.halt(str(error))
            return
        self._chunks += 1
        self._observed_ns, self._begins = stamp_ns, True
        self._arrival.add(self.stream.latency_s)
        self.tick()

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
