"""Client of the safety node: the dead-man's switch, arm, disarm, reset, e-stop, and the status of the nodes."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Sequence
from typing import Any

from diagnostic_msgs.msg import DiagnosticArray
from rclpy.clock import Clock
from rclpy.clock_type import ClockType
from rclpy.duration import Duration
from rclpy.node import Node
from std_msgs.msg import Bool, String
from std_srvs.srv import Trigger

from hardware.observing.timing import SafetySilent, Silence
from hardware.ros2 import messages, qos, topics
from hardware.ros2.messages import SafetyReport
from hardware.ros2.process import Background, wait_until
from hardware.safety.states import SafetyState
from robolearn.core import RobolearnError

DEADMAN_HZ = 20.0
POLL_S = 0.02
ACKED_S = 1.0  # for a message to arrive


class SafetyClient:
    """A client of the safety node, on the operator's side. Close it, or use it with `with`.

    Args:
      background: where its node spins; by default a context and a thread of its own, with the ROS arguments `args`.
      name, station: of its node, and the namespace of the station, see `Contract.namespace`.

    Attributes:
      report, reports: the newest of the safety node, or None; every change of state or reason, in order.
      policy, streamer: the newest of their status topics.
    """

    def __init__(
        self,
        background: Background | None = None,
        *,
        name: str = "operator",
        station: str = "",
        args: Sequence[str] = (),
    ) -> None:
        self._own = background is None
        self._background = background or Background(args=args)
        namespace = topics.namespace_of_nodes(station)
        self.node = self._background.add(Node(name, namespace=namespace, context=self._background.context))
        self.report: SafetyReport | None = None
        self.reports: list[SafetyReport] = []
        self.policy: dict[str, Any] = {}
        self.streamer: dict[str, Any] = {}
        self._held = False
        self._silence = Silence()
        services = (topics.ARM, topics.DISARM, topics.RESET, topics.ESTOP)
        self._calls = {name: self.node.create_client(Trigger, name) for name in services}
        self._deadman = self.node.create_publisher(Bool, topics.DEADMAN, qos.DEADMAN)
        self.node.create_subscription(DiagnosticArray, topics.SAFETY_STATE, self._on_safety, qos.latched())
        self.subscribe_json(topics.POLICY_STATUS, lambda value: setattr(self, "policy", value))
        self.subscribe_json(topics.STREAMER_STATUS, lambda value: setattr(self, "streamer", value))
        self.node.create_timer(1.0 / DEADMAN_HZ, self._beat, clock=Clock(clock_type=ClockType.STEADY_TIME))

    @property
    def state(self) -> str:
        """A `SafetyState`, or empty before anything was heard."""
        return self.report.state if self.report else ""

    @property
    def reason(self) -> str:
        """Of the state, as the safety node published it."""
        return self.report.reason if self.report else ""

    def check_heard(self) -> None:
        """Raise `SafetySilent` if the safety node does not report any more; called often."""
        self._silence.check()

    def hold(self) -> None:
        """Hold the dead-man's switch, until `release`."""
        self._held = True
        self._beat()

    def release(self) -> None:
        """Let the dead-man's switch go: the arm brakes and latches."""
        self._held = False
        self._beat()

    def wait_ready(self, timeout_s: float = 20.0, *, policy: bool = True) -> None:
        """Wait until the safety node answers and receives the dead-man's heartbeats, and, if `policy`, until that and
        the streamer are ready. Raises `RobolearnError`: not within the time; the message names what is missing."""
        end = time.monotonic() + timeout_s
        topic = self.node.resolve_topic_name(topics.SAFETY_STATE)

        def wait(condition: Callable[[], Any], what: str) -> None:
            wait_until(condition, max(end - time.monotonic(), 0.0), what)

        wait(lambda: self.report, f"the safety node: nothing on {topic}")
        wait(lambda: all(c.service_is_ready() for c in self._calls.values()), "the safety node's services")
        wait(lambda: self._deadman.get_subscription_count() > 0, "the safety node to receive the dead-man")
        for name in ("policy", "streamer") if policy else ():
            try:
                wait(lambda name=name: getattr(self, name).get("ready"), f"the {name} node")
            except RobolearnError as error:
                raise RobolearnError(f"{error}: {getattr(self, name).get('reason') or 'it gives no reason'}") from None

    def arm(self, timeout_s: float = 10.0) -> None:
        """Hold the dead-man and arm. What passes by itself within the time (a joint state late) is asked again. Raises
        `RobolearnError`: the safety node refuses; its reason. An arm that was armed and has been stopped since is no
        refusal: `state` says so."""
        self.hold()
        end = time.monotonic() + timeout_s
        while True:
            before = self._arming
            done, message = self.call(topics.ARM, max(end - time.monotonic(), 1.0))
            if done:
                self._wait(lambda number=before: self._was_armed(number), SafetyState.ARMED, 5.0)
                return
            if SafetyState.LATCHED in message or time.monotonic() > end:
                raise RobolearnError(message)
            time.sleep(0.1)

    def disarm(self, timeout_s: float = 5.0) -> None:
        """Brake to rest as planned, and wait for it. Raises `RobolearnError`: refused, or not disarmed in time."""
        self._must(topics.DISARM, timeout_s)
        self.wait_for(SafetyState.DISARMED, timeout_s)

    def reset(self, timeout_s: float = 5.0) -> None:
        """Leave LATCHED. Raises `RobolearnError`: refused, or not disarmed within the time."""
        self._must(topics.RESET, timeout_s)
        self.wait_for(SafetyState.DISARMED, timeout_s)

    def estop(self, timeout_s: float = 5.0) -> None:
        """Stop at once. Raises `RobolearnError`: the safety node does not answer."""
        self._must(topics.ESTOP, timeout_s)

    def judge(self, success: bool, timeout_s: float = 2.0) -> Callable[[], str]:
        """End the episode of a policy node that takes a verdict. Returns at once; what it returns is called again and
        again, gives the outcome once that node has answered, and until then nothing. That raises `RobolearnError`: the
        node refuses, there is none, or it does not answer within the time."""
        service = topics.SUCCESS if success else topics.FAILURE
        client = self._client(service)
        end, future = time.monotonic() + timeout_s, None

        def answer() -> str:
            nonlocal future
            if future is None and client.service_is_ready():
                future = client.call_async(Trigger.Request())
            if future is not None and future.done():
                given = future.result()
                if not given.success:
                    raise RobolearnError(str(given.message))
                return str(given.message)
            if time.monotonic() > end:
                if future is not None:
                    client.remove_pending_request(future)
                where = self.node.resolve_service_name(service)
                raise RobolearnError(f"no policy node takes a verdict on {where}: one of deploy.launch.py does")
            return ""

        return answer

    def publish_json(self, topic: str) -> Callable[[dict[str, Any]], None]:
        """A function that publishes a value, as JSON, for late subscribers too; it waits until those there have it."""
        publisher = self.node.create_publisher(String, topic, qos.latched(10))

        def publish(value: dict[str, Any]) -> None:
            publisher.publish(messages.text(json.dumps(value)))
            publisher.wait_for_all_acked(Duration(seconds=ACKED_S))

        return publish

    def call(self, service: str, timeout_s: float = 5.0, *, at_once: bool = False) -> tuple[bool, str]:
        """Call any Trigger service; True where it was done, and the message. Raises `SafetySilent`: the safety node
        hangs; `RobolearnError`: it is not there, or does not answer within the time."""
        client = self._client(service)
        if not at_once:
            wait_until(client.service_is_ready, timeout_s, f"service {service}")
        answered = threading.Event()
        future = client.call_async(Trigger.Request())
        future.add_done_callback(lambda _: answered.set())
        try:
            wait_until(lambda: self._meanwhile(answered.wait(POLL_S)), timeout_s, f"an answer of {service}")
        except RobolearnError:
            client.remove_pending_request(future)
            raise
        answer = future.result()
        return bool(answer.success), str(answer.message)

    def wait_for(self, state: str, timeout_s: float = 5.0) -> SafetyReport:
        """Wait for a state of the safety node. Raises `RobolearnError`: it is not reached within the time; the message
        has the state and its reason."""
        self._wait(lambda: self.state == state, state, timeout_s)
        assert self.report is not None
        return self.report

    @property
    def _arming(self) -> str:
        """The number of the present or last arming, as reported."""
        return self.report.values.get("arming", "") if self.report else ""

    def _was_armed(self, before: str) -> bool:
        """True where the arm is armed, or was since the arming `before` and was stopped before that was heard."""
        stopped = self.state in (SafetyState.BRAKING, SafetyState.LATCHED)
        return self.state == SafetyState.ARMED or (stopped and self._arming != before)

    def _wait(self, condition: Callable[[], bool], state: str, timeout_s: float) -> None:
        try:
            wait_until(lambda: self._meanwhile(condition()), timeout_s, f"the safety node to be {state}")
        except SafetySilent:
            raise
        except RobolearnError as error:
            raise RobolearnError(f"{error}; it is {self.state or 'silent'}: {self.reason}") from None

    def subscribe_json(self, topic: str, callback: Callable[[dict[str, Any]], None], depth: int = 1) -> None:
        """Call back with each JSON object on a latched String topic, from the spinning thread."""
        self.node.create_subscription(
            String, topic, lambda message: callback(json.loads(message.data)), qos.latched(depth)
        )

    def close(self) -> None:
        """Let go of everything; the background too, if it is our own."""
        self._held = False
        if self._own:
            self._background.close()

    def __enter__(self) -> SafetyClient:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _client(self, service: str) -> Any:
        if service not in self._calls:
            self._calls[service] = self.node.create_client(Trigger, service)
        return self._calls[service]

    def _must(self, service: str, timeout_s: float) -> None:
        done, message = self.call(service, timeout_s)
        if not done:
            raise RobolearnError(message)

    def _meanwhile(self, done: bool) -> bool:
        if not done:
            self.check_heard()
        return done

    def _beat(self) -> None:
        self._deadman.publish(Bool(data=self._held))

    def _on_safety(self, message: DiagnosticArray) -> None:
        report = messages.read_safety_report(message)
        if report is None:
            return
        if self.report is None or (report.state, report.reason) != (self.report.state, self.report.reason):
            self.reports.append(report)
        self.report = report
        self._silence.heard()
