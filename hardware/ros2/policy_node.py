"""The policy node: observation → action chunk, stamped with the moment of the observation.

What is asked when, and how much of a chunk is sent, is `hardware.execution.prediction`'s. Inference has a thread of its
own, so that joint states stay fresh, and runs only while the safety node is *armed*.
"""

from __future__ import annotations

import contextlib
import json
import logging
import math
import time
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
from diagnostic_msgs.msg import DiagnosticArray
from numpy.typing import NDArray
from rclpy.subscription import MessageInfo
from std_msgs.msg import Empty, String
from std_srvs.srv import Trigger
from trajectory_msgs.msg import JointTrajectory

from hardware.execution.episode_end import FAILURE, EpisodeEnd, EpisodeJudge
from hardware.execution.policy_stop import PolicyStop
from hardware.execution.prediction import EARLY_S, PredictionRequest, Predictor
from hardware.node_parameters import PolicyParameters
from hardware.observing.observer import NotObserved, Observer
from hardware.observing.timing import Latencies
from hardware.ros2 import messages, qos, topics
from hardware.ros2.observation_inputs import ObservationInputs
from hardware.ros2.runtime import LOOK_S, Node
from robolearn.core import BadInput, Interface, Policy, RobolearnError, bind_policy
from robolearn.core.protocols import UNJUDGED, familiarity

log = logging.getLogger(__name__)

POLL_S = 0.005  # between two polls of the inputs, where an executor does it
NEAR_S = 0.006  # before a decision is due: the next joint state may be the one for it
ALIGNED_S = 0.002  # joint states and objects of one moment differ by less
PATIENCE_S = 0.012  # and are waited for no longer than this
ALIVE_S = 0.02  # between heartbeats
WATCH_S = 0.01  # between two looks at the inputs, beside those for a decision
DISARM_S = 3.0  # for the arm to be at rest, after which the node ends anyway and the safety node brakes by itself


class PolicyNode(Node):
    """Runs a policy on observations and publishes its action chunks.

    Args:
      load: opens the policy that the parameters name.
      judge: makes the judge of the reward model that they name, or None, for a policy of this interface.
      station: see `Node`.
    """

    def __init__(
        self,
        load: Callable[[PolicyParameters], Policy],
        judge: Callable[[PolicyParameters, Interface], EpisodeJudge | None] = lambda *_: None,
        **station: Any,
    ) -> None:
        super().__init__("policy", **station)
        self._load, self._make_judge = load, judge
        self.predictor: Predictor | None = None
        self._end: EpisodeEnd | None = None

    def configure(self) -> None:
        contract = self.any_station()
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
        self._end = EpisodeEnd(
            p.seconds, self._make_judge(p, needed), p.words, judge_ends=p.reward_ends, by_key=p.by_key
        )
        self._episode, self._told = "", False  # the newest arming; the reward model's verdict on it was reported
        self._outcome, self._ended_at = "", math.inf  # of the episode that has ended, and when
        # Only where something ends an episode: an enclave of former permissions does not have the service.
        self._disarm = self.create_client(Trigger, topics.DISARM) if self._end.is_asked_for else None
        for topic, success in ((topics.SUCCESS, True), (topics.FAILURE, False)) if p.by_key else ():
            self.create_service(Trigger, topic, partial(self.judge, success))
        self._near = False  # an observation that is acted on is about to come
        self._arming = ""  # which arming this is; empty: not armed
        self._stop = PolicyStop()
        self._watched_at = self._pictures_at = -math.inf
        self._pictures = ""  # problem of what the newest pictures show
        self.chunks = 0
        self._complained = 0.0
        self._unjudged = False  # said that the policy cannot be compared with its demonstrations
        self._latency = Latencies()
        contract.robot.forward(np.zeros((1, len(contract.joints))))  # compiled now, not while the arm moves
        period = 1.0 / contract.control_hz
        self.predictor = Predictor(
            self.policy, period, self._publish, seed=p.seed, tail_steps=p.tail_steps,
            delay_s=max(p.delay_steps, 0) * period,
        )  # fmt: skip

        self._chunk_publisher = self.create_publisher(JointTrajectory, topics.ACTION_CHUNK, qos.CHUNK)
        self._status_publisher = self.create_publisher(String, topics.POLICY_STATUS, qos.latched())
        self._alive_publisher = self.create_publisher(Empty, topics.POLICY_ALIVE, qos.ALIVE)
        self._alive_at = -math.inf
        self._observation_inputs = ObservationInputs(self, contract, self.observer, needed.observation)
        self.hear(DiagnosticArray, topics.SAFETY_STATE, self._on_safety, qos.latched())
        self.beat(self.quick(POLL_S), self._tick)
        self.every(0.5, self._report)

    def destroy_node(self) -> None:
        if self.predictor is not None:
            self.predictor.close()
            self.predictor = None
        if self._end is not None:
            self._end.close()
        super().destroy_node()

    # --- what arrives --------------------------------------------------------------------------------------

    def _on_safety(self, message: DiagnosticArray, info: MessageInfo) -> None:
        report = messages.read_safety_report(message)
        arming = report.arming if report else ""
        if arming == self._arming:
            return
        self._arming = arming
        assert self.predictor is not None and self._end is not None
        # The newest joint state has waited up to the time between two, which the first command would be late by.
        self.predictor.begin(arming, after=self.observer.stamps()[0])
        self._stop.begin(arming)
        if arming:
            self._episode, self._told = arming, False
        elif self._end.is_judged:
            with contextlib.suppress(NotObserved):  # may be the only one that shows success
                self._end.add_last(self.observer.observation())
        self._end.arm(bool(arming), time.monotonic())
        if self._outcome:
            self.leave()

    def _tick(self) -> float:
        self.take_all()
        now = time.monotonic()
        if now - self._alive_at >= ALIVE_S:
            self._alive_at = now
            self._alive_publisher.publish(Empty())
        self.look_for_end(now)
        self.tell_verdict()
        if not self._ask():  # else the policy is to have the interpreter
            self._watch(now)
        return self._pause()

    def _pause(self) -> float:
        """By how much the next beat is later [s]: sooner where an observation is about to come that is acted on, and
        later while the policy computes, which has the same interpreter."""
        predictor = self.predictor
        if not self.active or predictor is None or predictor.busy:
            return LOOK_S
        near = -NEAR_S < predictor.overdue(self.observer.stamps()[0]) < PATIENCE_S
        if near and not self._near:
            predictor.warm()
        self._near = near
        return self.sooner(near)

    # --- the end of an episode -----------------------------------------------------------------------------

    def look_for_end(self, now: float) -> None:
        """Ask for the arm to be disarmed once the episode has ended; until it is, the policy goes on, as a chunk that
        runs out would latch the filter."""
        assert self._end is not None
        if self._outcome:
            if now - self._ended_at > DISARM_S:
                self.leave()
        elif self._disarm is not None and (outcome := self._end.outcome(now)):
            self._outcome, self._ended_at = outcome, now
            log.info("the episode has ended: %s", outcome)
            self._report()  # at once: a recorder learns it before the arm is at rest
            self._disarm.call_async(Trigger.Request())

    def tell_verdict(self) -> None:
        """Report the reward model's verdict at once when the episode that it is on is over: somebody waits."""
        assert self._end is not None
        if self._end.is_judged and not (self._told or self._arming) and self._end.verdict()["settled"]:
            self._told = True
            self._report()

    def judge(self, success: bool, request: Trigger.Request, response: Trigger.Response) -> Trigger.Response:
        """The operator ends the episode with this verdict."""
        assert self._end is not None
        refused = f"the episode has ended already: {self._outcome}" if self._outcome else self._end.judged(success)
        response.success, response.message = not refused, refused or self._end.outcome(time.monotonic())
        return response

    def leave(self) -> None:
        """Say how the episode ended, and end; a failure is that of the program, too."""
        if not self.done:
            self.done = True
            if self._outcome == FAILURE:
                self.error = RobolearnError("the episode is a failure, as the operator says")
            self._report()

    # --- asking --------------------------------------------------------------------------------------------

    def _ask(self) -> bool:
        """Request an inference, if it is time for one and none is running. True where it was."""
        if not self.active or self.predictor is None:
            return False
        stamp, apart = self.observer.stamps()
        late = self.predictor.overdue(stamp)
        # Slightly early: the next joint state comes much later than that.
        if late < -EARLY_S or (apart > ALIGNED_S and late < PATIENCE_S):
            return False
        try:
            observation = self.observer.observation()
        except NotObserved as error:
            # No chunk is published; a problem that lasts is a stop, see `_watch`.
            self._complain(str(error))
            return False
        refused, warned = familiarity(self.policy, observation)
        if refused or (warned and not self._unjudged):
            self._complain(refused or warned)
        self._unjudged = warned == UNJUDGED
        self._stop.refused(refused)
        if not refused:
            self.predictor.ask(stamp, observation, self._observation_inputs.stamp)
            # In the middle of control steps: not when the joint states of the next decision are due.
            self._pictures_at = time.monotonic() + 0.5 / self.contract.control_hz
        return not refused

    def _watch(self, now: float) -> None:
        """Ask for a stop as soon as the policy has failed, or what it is to see stays wrong: it may not be asked for a
        while, and the arm goes on with its chunk."""
        if not self._arming or self.predictor is None or now - self._watched_at < WATCH_S:
            return
        self._watched_at = now
        if self._pictures or now >= self._pictures_at:
            self._pictures_at = now + 1.0 / self.contract.control_hz
            self._pictures = self.observer.pictures_problem()
        self._stop.failed(self.predictor.fault)
        silent = self.observer.silence()
        self._stop.look(silent or self._pictures or self.observer.problem(), silent=bool(silent))
        if reason := self._stop.due():
            self._complain(reason)
            self._chunk_publisher.publish(messages.stop(reason, self._observation_inputs.stamp))

    def _publish(self, request: PredictionRequest, actions: NDArray) -> None:
        names, period = self.contract.interface.action.names, 1.0 / self.contract.control_hz
        self._chunk_publisher.publish(messages.chunk(names, actions, request.tag, period))
        self._stop.acted()
        assert self._end is not None
        self._end.add(request.observation, actions[0])
        self.chunks += 1
        self._latency.add(time.monotonic() - request.asked)

    # --- saying --------------------------------------------------------------------------------------------

    def _complain(self, reason: str) -> None:
        if time.monotonic() - self._complained > 1.0:
            self._complained = time.monotonic()
            log.warning("%s", reason)

    def _report(self) -> None:
        reason, warned = (self.predictor.fault if self.predictor is not None else "") or self.observer.problem(), ""
        if not reason:
            with contextlib.suppress(NotObserved):
                reason, warned = familiarity(self.policy, self.observer.observation())
        status = {
            "ready": not reason,
            "reason": reason,
            "unfamiliar": warned,
            "ended": self._outcome,
            "chunks": self.chunks,
            "inference_ms": self._latency.summary_ms(),
        }
        if self._end is not None and self._end.is_judged:
            status["reward"] = {**self._end.verdict(), "episode": self._episode, "over": not self._arming}
        self._status_publisher.publish(messages.text(json.dumps(status)))
