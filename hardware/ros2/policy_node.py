"""The policy node: observation → action chunk, stamped with the moment of the observation.

One inference per executed chunk. A chunk made from the observation of time s is executed over
[s, s + Ta/control_hz); so the next observation is the one taken at the end of that, as in the simulator. Where
inference takes longer than a control step, so many further actions are sent as are executed until the next chunk is
there, as far as the policy predicts. Inference runs in a thread of its own: meanwhile joint states stay fresh. It runs
only while the safety node is *armed*.
"""

from __future__ import annotations

import json
import logging
import math
import queue
import statistics
import sys
import threading
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from builtin_interfaces.msg import Time
from diagnostic_msgs.msg import DiagnosticArray
from numpy.typing import NDArray
from rclpy.subscription import MessageInfo
from std_msgs.msg import Empty, String
from trajectory_msgs.msg import JointTrajectory

from hardware.node_parameters import PolicyParameters
from hardware.observing.observer import NotObserved, Observer
from hardware.observing.timing import Latencies
from hardware.ros2 import messages, qos, topics
from hardware.ros2.observation_inputs import ObservationInputs
from hardware.ros2.runtime import Node
from robolearn.core import BadInput, Interface, Observation, Policy, RobolearnError, bind_policy

log = logging.getLogger(__name__)

LOOK_S = 0.005  # between two polls of the inputs
ALIGNED_S = 0.002  # joint states and objects of one moment differ by less
EARLY_S = 0.0005
TYPICAL = 9  # inferences whose median says how long one takes
ALIVE_S = 0.02  # between heartbeats
PATIENCE_S = 0.012  # and are waited for no longer than this


@dataclass(frozen=True)
class _Request:
    arming: str
    observation: dict[str, NDArray]
    stamp: Time
    asked: float
    acts: bool  # else the policy only takes it into its history


class PolicyNode(Node):
    """Runs a policy on observations and publishes its action chunks.

    Args:
      load: opens the policy that the parameters name.
      station: see `Node`.
    """

    def __init__(self, load: Callable[[PolicyParameters], Policy], **station: Any) -> None:
        super().__init__("policy", **station)
        self._load = load
        self._slot: queue.Queue[_Request | None] = queue.Queue(1)
        self._worker: threading.Thread | None = None

    def configure(self) -> None:
        contract = self.station()
        p: PolicyParameters = self.parameters
        if p.delay_steps and not contract.simulated:
            raise BadInput("delay_steps", got=p.delay_steps, expected=f"0 on {contract.name}, a real arm")
        self.policy = self._load(p)
        if (objects := self.policy.interface.observation.get("objects")) is not None:
            contract = contract.with_objects(objects.names or [n for n in p.objects.split(",") if n])
        contract = contract.with_picture_sizes(self.policy.interface.observation)
        bind_policy(self.policy, contract.interface, what=f"policy {p.policy or 'given'} on contract {contract.name}")
        needed = self.policy.interface
        self.contract, self.observer = contract, Observer(contract, needed.observation)
        self._period = 1.0 / contract.control_hz
        self._steps = self.policy.execute_steps
        self._arming = ""  # which arming this is; empty: not armed
        self._busy = False
        self._due = -math.inf  # stamp of the next observation to act on
        self._look = math.inf  # and of the next one to see, for a policy that sees every step
        self._fault = ""
        self._chunks = 0
        self._complained = 0.0
        self._latency, self._took = Latencies(), deque[float](maxlen=TYPICAL)
        self.policy.reset(self.value("seed"))
        self._warm_up(needed)

        self._chunk_publisher = self.create_publisher(JointTrajectory, topics.ACTION_CHUNK, qos.CHUNK)
        self._status_publisher = self.create_publisher(String, topics.POLICY_STATUS, qos.latched())
        self._alive_publisher = self.create_publisher(Empty, topics.POLICY_ALIVE, qos.ALIVE)
        self._alive_at = -math.inf
        self._observation_inputs = ObservationInputs(self, contract, self.observer, needed.observation)
        self.hear(DiagnosticArray, topics.SAFETY_STATE, self._on_safety, qos.latched())
        self.beat(LOOK_S, self._tick)
        self.every(0.5, self._report)
        # Inference holds the interpreter for up to 5 ms by default; joint states must not wait that long.
        sys.setswitchinterval(0.001)
        self._worker = threading.Thread(target=self._infer, name="policy", daemon=True)
        self._worker.start()

    def destroy_node(self) -> None:
        if self._worker is not None:
            self._arming = ""
            self._slot.put(None)
            self._worker.join(2.0)
            self._worker = None
        super().destroy_node()

    # --- what arrives --------------------------------------------------------------------------------------

    def _on_safety(self, message: DiagnosticArray, info: MessageInfo) -> None:
        report = messages.read_safety_report(message)
        arming = report.arming if report else ""
        if arming == self._arming:
            return
        self._arming = arming
        if arming:
            self._due, self._fault = -math.inf, ""
            self.policy.begin(np.ones(1, dtype=bool))

    def _tick(self) -> None:
        self.take_all()
        now = time.monotonic()
        if now - self._alive_at >= ALIVE_S:
            self._alive_at = now
            self._alive_publisher.publish(Empty())
        self._ask()

    # --- asking --------------------------------------------------------------------------------------------

    def _ask(self) -> None:
        """Request an inference, if it is time for one and none is running."""
        if not self.active or not self._arming or self._busy or self._fault:
            return
        stamp, apart = self.observer.stamps()
        late = stamp - min(self._due, self._look)
        # Half a millisecond early: stamps are rounded, and the next joint state comes much later than that.
        if late < -EARLY_S or (apart > ALIGNED_S and late < PATIENCE_S):
            return
        try:
            observation = self.observer.observation()
        except NotObserved as error:
            # Nothing is published; the chunk runs out, and the streamer stops.
            self._complain(str(error))
            return
        self._busy = True
        acts = stamp - self._due >= -EARLY_S
        if acts:
            self._due = stamp + self._steps * self._period
        self._look = stamp + self._period if self.policy.observes_every_step else math.inf
        self._slot.put(_Request(self._arming, observation, self._observation_inputs.stamp, time.monotonic(), acts))

    def _infer(self) -> None:
        while (request := self._slot.get()) is not None:
            try:
                if not request.acts:
                    self.policy.observe(request.observation)
                    continue
                actions = self._act(request.observation)[0]
                self._took.append(time.monotonic() - request.asked)
                actions = actions[: self._steps + self._tail()]
                if request.arming == self._arming:
                    message = messages.chunk(self.contract.interface.action.names, actions, request.stamp, self._period)
                    self._chunk_publisher.publish(message)
                    self._chunks += 1
                    self._latency.add(time.monotonic() - request.asked)
            except Exception as error:
                self._fault = f"the policy failed: {error}" if isinstance(error, RobolearnError) else repr(error)
                log.error("%s", self._fault)
            finally:
                self._busy = False

    def _act(self, observation: Observation) -> NDArray:
        chunk = np.asarray(self.policy.act(observation))
        time.sleep(max(self.value("delay_steps"), 0) * self._period)
        return chunk

    def _tail(self) -> int:
        """Number of actions sent beyond those of the chunk: those executed while the next is computed."""
        if (asked := self.value("tail_steps")) >= 0:
            return asked
        steps = statistics.median(self._took) / self._period
        # One more: the next may take longer than they usually do.
        return 0 if steps < 1 else math.ceil(steps) + 1

    def _warm_up(self, needed: Interface) -> None:
        """Compile and allocate now, not while the arm moves, and measure an inference."""
        blank = {key: np.zeros((1, *spec.shape), spec.dtype) for key, spec in needed.observation.items()}
        chunk = self._act(blank)
        size = len(needed.action.names) or needed.action.size
        if chunk.ndim != 3 or chunk.shape[2] != size or chunk.shape[1] < self.policy.execute_steps:
            raise BadInput("policy's chunk", got=chunk.shape, expected=(1, f"≥ {self.policy.execute_steps}", size))
        begun = time.monotonic()
        self._act(blank)
        self._took.append(time.monotonic() - begun)
        if (steps := self._took[0] / self._period) > chunk.shape[1] - self.policy.execute_steps and steps > 1:
            log.warning(
                "a decision takes %.0f ms, %.1f control steps: of %d predicted %d are executed, and the others do not "
                "last until the next: train with a longer --horizon",
                1e3 * self._took[0], steps, chunk.shape[1], self.policy.execute_steps,
            )  # fmt: skip
        self.contract.robot.chain.forward(np.zeros((1, len(self.contract.joints))))
        self.policy.reset(self.value("seed"))

    # --- saying --------------------------------------------------------------------------------------------

    def _complain(self, reason: str) -> None:
        if time.monotonic() - self._complained > 1.0:
            self._complained = time.monotonic()
            log.warning("%s", reason)

    def _report(self) -> None:
        reason = self._fault or self.observer.problem()
        status = {
            "ready": not reason,
            "reason": reason,
            "chunks": self._chunks,
            "inference_ms": self._latency.summary_ms(),
        }
        self._status_publisher.publish(messages.text(json.dumps(status)))
