"""The commands that launch files stand for, spawned: real executables, real rclpy, real DDS."""

from __future__ import annotations

import os
import re
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

sys.path.insert(0, str(Path(__file__).parents[1] / "cli"))
from test_operate import Terminal
from untrained import make_constant

import hardware.ros2  # noqa: F401  (prepares the environment for rclpy)
from hardware.node_parameters import HilParameters
from hardware.ros2 import messages, qos
from hardware.ros2.process import Background, wait_until
from hardware.ros2.safety_client import SafetyClient
from hardware.safety import SafetyFilter
from policies.normalize import Normalizer
from policies.policy import ChunkPolicy
from policies.settings import FlowConfig, NetworkConfig
from policies.storage.checkpoint import save_policy
from robolearn.data.reading.reader import Dataset
from robolearn.deploy.processes import may_be_realtime
from robots.stations import load_contract, load_pair
from sim.registry import make_env

pytestmark = pytest.mark.long

DOMAIN = int(os.environ["ROS_DOMAIN_ID"]) + 7
ROOT = Path(__file__).parents[2]
Launch = Callable[..., Any]


@pytest.fixture(scope="module")
def policy(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An untrained policy for `lift`."""
    interface: Any = make_env("lift", 1, threads=1).interface  # type: ignore[attr-defined]
    net = FlowConfig(network=NetworkConfig(width=32, depth=2)).build(interface)
    statistics = {
        name: {"mean": [0.0] * spec.shape[0], "std": [1.0] * spec.shape[0]}
        for name, spec in interface.observation.items()
    }
    size = interface.action.shape[0]
    statistics["action"] = {"min": [-1.0] * size, "max": [1.0] * size}
    normalizer = Normalizer.from_statistics(interface, statistics)
    return save_policy(ChunkPolicy(net, normalizer, interface), tmp_path_factory.mktemp("policy"))


@pytest.fixture(scope="module")
def compiled() -> None:
    """The filter's machine code, cached on disk: made once, which can take a minute on a machine that is busy."""
    contract = load_contract("sim")
    SafetyFilter(contract.robot, contract.joints, contract.limits, 1.0 / contract.stream_hz)


@contextmanager
def spawned(started: list[Any], folder: Path) -> Iterator[dict[str, subprocess.Popen[bytes]]]:
    """Every process, in the same domain; killed at the end if it is still there."""
    path = f"{ROOT}{os.pathsep}{folder}"  # reward models of a test are in its folder
    env = {**os.environ, "ROS_DOMAIN_ID": str(DOMAIN), "PYTHONPATH": path, "OMP_NUM_THREADS": "1"}
    children: dict[str, subprocess.Popen[bytes]] = {}
    try:
        for process in started:
            with (folder / f"{process.executable}.log").open("wb") as log:
                children[process.node] = subprocess.Popen(process.command, env=env, stdout=log, stderr=log)
        yield children
    finally:
        for child in children.values():
            child.kill()
            child.wait()


def logs(folder: Path) -> str:
    return "\n".join(f"== {path.stem}\n{path.read_text()}" for path in sorted(folder.glob("*.log")))


def interrupted(children: dict[str, subprocess.Popen[bytes]], wait_s: float, folder: Path) -> dict[str, int]:
    """Exit codes after one SIGINT each, as ros2 launch sends it to all of them at Ctrl-C. A node that waits for another
    one that has gone says so: after that launch would send SIGTERM, and then SIGKILL."""
    for child in children.values():
        child.send_signal(signal.SIGINT)
    codes = {node: child.wait(wait_s) for node, child in children.items()}
    said = logs(folder)
    assert "emergency stop" not in said and "Traceback" not in said, said
    return codes


def nodes(operator: SafetyClient) -> set[str]:
    return {f"{space}/{name}" for name, space in operator.node.get_node_names_and_namespaces()}


def test_every_parameter_is_one_that_its_node_declares(launch: Launch, policy: Path) -> None:
    from hardware.ros2.gripper_node import GripperNode
    from hardware.ros2.policy_node import PolicyNode
    from hardware.ros2.record_node import RecordNode
    from hardware.ros2.safety_node import SafetyNode
    from hardware.ros2.servos_node import ServosNode
    from hardware.ros2.sim_arm_node import SimArmNode
    from hardware.ros2.streamer_node import StreamerNode
    from hardware.ros2.teleop_node import TeleopNode

    with Background(DOMAIN) as ros:
        context = {"context": ros.context}
        made = {
            "record_node": RecordNode(lambda _: None, **context),  # type: ignore
            "hil_node": RecordNode(lambda _: None, name="hil", defaults=HilParameters(), **context),  # type: ignore
            "teleop_node": TeleopNode(lambda *_: None, **context),  # type: ignore
            "policy_node": PolicyNode(lambda *_, **__: None, **context),  # type: ignore[arg-type,return-value]
            "safety_node": SafetyNode(**context),
            "gripper_node": GripperNode(**context),
            "servos_node": ServosNode(lambda *_: None, **context),  # type: ignore[arg-type,return-value]
            "streamer_node": StreamerNode(**context),
            "sim_arm_node": SimArmNode(lambda *_: None, **context),  # type: ignore[arg-type]
        }
        started = launch("deploy", policy=str(policy)).started + launch("record", out="x").started
        started += launch("hil", policy=str(policy), out="x").started
        started += launch("teleop").started + launch("arm", robot="fr3").started
        started += launch("servos", robot="fr3", namespace="robolearn").started
        for process in started:
            node = made[process.executable]
            assert process.node == f"{node.get_namespace()}/{node.get_name()}"
            for name in process.parameters:
                assert node.has_parameter(name), (process.executable, name)
        for node in made.values():
            node.destroy_node()


@pytest.mark.realtime
def test_a_deployment_in_simulation_arms_and_ends(compiled: None, launch: Launch, policy: Path, tmp_path: Path) -> None:
    started = launch("deploy", robot="sim", policy=str(policy), task="lift", seed="3").started
    assert len(started) == 4
    with spawned(started, tmp_path) as children, Background(DOMAIN) as ros:
        operator = SafetyClient(ros)
        try:
            wait_until(lambda: {p.node for p in started} <= nodes(operator), 90.0, "all four nodes")
            operator.wait_ready(90.0)
            operator.arm(30.0)
            codes = interrupted(children, 20, tmp_path)
        except Exception as error:
            pytest.fail(f"{error}\n{logs(tmp_path)}")
    assert codes == dict.fromkeys(codes, 0), logs(tmp_path)


@pytest.mark.realtime
def test_an_episode_of_a_launch_file_ends_by_its_time(
    compiled: None, launch: Launch, policy: Path, tmp_path: Path
) -> None:
    started = launch("deploy", robot="sim", policy=str(policy), task="lift", seconds="1.0").started
    with spawned(started, tmp_path) as children, Background(DOMAIN) as ros:
        operator = SafetyClient(ros)
        try:
            operator.wait_ready(90.0)
            operator.arm(30.0)
            assert children["/robolearn/policy"].wait(30) == 0
            wait_until(lambda: operator.state == "disarmed", 10.0, "an arm at rest")
        except Exception as error:
            pytest.fail(f"{error}\n{logs(tmp_path)}")
    assert "the episode has ended: timeout" in (tmp_path / "policy_node.log").read_text()


CLASSIFIER = """
import numpy as np
from robolearn.core import Score


class Raised:
    def __init__(self, interface):
        self.z = interface.observation["proprio"].names.index("tcp_z")
        self.weight, self.bias = np.load({weights!r})

    def score(self, windows, prompts):
        z = [window.observation["proprio"][:, self.z] for window in windows]
        p = [1 / (1 + np.exp(-(self.weight * (each[1:] - each[0]) + self.bias))).astype("f4") for each in z]
        return [Score(each, each, each >= 0.5, np.maximum(each, 1 - each)) for each in p]
"""


def fitted() -> np.ndarray:
    """Weight and bias of a logistic regression: a tool that has risen by 4 cm is done, by 2 cm not yet."""
    gain = np.random.default_rng(0).uniform(-0.01, 0.07, 400)
    gain, w = gain[np.abs(gain - 0.03) > 0.01], np.zeros(2)
    x = np.stack([100 * gain, np.ones_like(gain)], axis=1)
    for _ in range(4000):
        w -= 0.1 * x.T @ (1 / (1 + np.exp(-x @ w)) - (gain > 0.03)) / len(x)
    return w * [100.0, 1.0]


@pytest.mark.realtime
@pytest.mark.parametrize(("dz", "seconds", "outcome"), [(-0.3, 60.0, "success"), (0.0, 4.0, "timeout")])
def test_a_success_classifier_ends_an_episode_of_a_launch_file(
    compiled: None, launch: Launch, tmp_path: Path, dz: float, seconds: float, outcome: str
) -> None:
    """One policy raises the tool until the classifier calls that done, the other rests until its time is over."""
    np.save(tmp_path / "weights.npy", fitted())
    (tmp_path / "raised.py").write_text(CLASSIFIER.format(weights=str(tmp_path / "weights.npy")))
    policy = make_constant(tmp_path / "policy", load_contract("sim").interface, dz=dz)
    given = {"policy": str(policy), "task": "lift", "seconds": str(seconds), "reward": "raised:Raised"}
    with spawned(launch("deploy", robot="sim", **given).started, tmp_path) as children, Background(DOMAIN) as ros:
        operator = SafetyClient(ros)
        try:
            operator.wait_ready(120.0)
            begun = time.monotonic()
            operator.arm(30.0)
            assert children["/robolearn/policy"].wait(90) == 0
            taken = time.monotonic() - begun
            wait_until(lambda: operator.state == "disarmed", 10.0, "an arm at rest")
        except Exception as error:
            pytest.fail(f"{error}\n{logs(tmp_path)}")
    assert f"the episode has ended: {outcome}" in (tmp_path / "policy_node.log").read_text()
    assert "latched" not in [report.state for report in operator.reports], operator.reports
    assert taken < seconds if outcome == "success" else taken > seconds


@pytest.mark.realtime
@pytest.mark.parametrize(("key", "code", "outcome"), [("1", 0, "success"), ("-", 1, "failure")])
def test_an_episode_of_a_launch_file_ends_by_the_key_of_the_operator(
    compiled: None, launch: Launch, policy: Path, tmp_path: Path, key: str, code: int, outcome: str
) -> None:
    """By `robolearn operate` on a terminal, beside the nodes: the arm comes to rest, and the exit code says it."""
    started = launch("deploy", robot="sim", policy=str(policy), task="lift").started
    env = {**os.environ, "ROS_DOMAIN_ID": str(DOMAIN), "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
    with spawned(started, tmp_path) as children, Background(DOMAIN) as ros, Terminal(env) as terminal:
        watcher = SafetyClient(ros, name="watcher")
        try:
            watcher.wait_ready(90.0)
            terminal.wait(r"\d disarmed")
            terminal.press(key)
            terminal.wait("refused: no episode runs: the arm is not armed")
            terminal.wait(r"\d armed", press="a")
            assert children["/robolearn/policy"].poll() is None
            terminal.press(key)
            terminal.wait(f"the episode has ended: {outcome}")
            assert children["/robolearn/policy"].wait(30) == code
            wait_until(lambda: watcher.state == "disarmed", 10.0, "an arm at rest")
        except Exception as error:
            pytest.fail(f"{error}\n{logs(tmp_path)}")
    assert "latched" not in [report.state for report in watcher.reports], watcher.reports
    said = (tmp_path / "policy_node.log").read_text()
    assert f"the episode has ended: {outcome}" in said
    assert ("error: the episode is a failure, as the operator says" in said) == bool(code)


@pytest.mark.realtime
def test_two_arms_of_a_launch_file_are_armed_together_and_end(launch: Launch, tmp_path: Path) -> None:
    pair = load_pair("panda_pair")
    SafetyFilter(pair.robot, pair.joints, pair.limits, 1.0 / pair.stream_hz)
    policy = make_constant(tmp_path / "policy", pair.interface, left_dz=-0.05, right_dy=0.02)
    station = {"robot": "panda_pair", "task": "lift_two", "policy": str(policy)}
    started = launch("deploy", **station, seconds="2.0").started
    seen: dict[str, list[np.ndarray]] = {name: [] for name in pair.arms}
    with spawned(started, tmp_path) as children, Background(DOMAIN) as ros:
        operator = SafetyClient(ros)
        for name, arm in pair.arms.items():
            heard = partial(lambda q, arm, message: q.append(messages.pick(message, arm.joints)), seen[name], arm)
            operator.node.create_subscription(messages.JointState, arm.joint_states.topic, heard, qos.sensor(10))
        try:
            operator.wait_ready(120.0)
            operator.arm(30.0)
            assert children["/robolearn/policy"].wait(30) == 0
            wait_until(lambda: operator.state == "disarmed", 10.0, "two arms at rest")
            moved = {
                name: float(np.abs(q[-1] - np.array(pair.arms[name].robot.home)).max()) for name, q in seen.items()
            }
            del children["/robolearn/policy"]
            codes = interrupted(children, 20, tmp_path)
        except Exception as error:
            pytest.fail(f"{error}\n{logs(tmp_path)}")
    assert codes == dict.fromkeys(codes, 0) and len(codes) == 3, logs(tmp_path)
    assert min(moved.values()) > 0.005, moved
    assert "the episode has ended: timeout" in (tmp_path / "policy_node.log").read_text()


def test_two_arms_whose_grippers_take_topics_need_no_node_for_them(launch: Launch, tmp_path: Path) -> None:
    (gripper,) = (p for p in launch("arm", robot="so101_pair").started if p.executable == "gripper_node")
    with spawned([gripper], tmp_path) as children:
        assert children["/robolearn/gripper"].wait(60) == 0, logs(tmp_path)
    assert "so101_pair has no gripper.action: nothing to do" in logs(tmp_path)


def status(url: str) -> int:
    """What a server answers a browser that has never been there."""
    browser = urllib.request.build_opener(urllib.request.HTTPCookieProcessor())
    try:
        with browser.open(url, timeout=10.0) as answer:
            return int(answer.status)
    except urllib.error.HTTPError as error:
        return error.code


@pytest.mark.realtime
def test_a_recording_by_script_in_simulation_is_shown_on_a_page(compiled: None, launch: Launch, tmp_path: Path) -> None:
    out = tmp_path / "set"
    priority = str(10 if may_be_realtime() else 0)
    started = launch(
        "record", device="scripted", out=str(out), episodes="1", task="lift", realtime_priority=priority,
        view="browser", port="0",
    ).started  # fmt: skip
    assert [process.executable for process in started] == ["record_node", "safety_node", "sim_arm_node"]
    log = tmp_path / "record_node.log"
    with spawned(started, tmp_path) as children:
        wait_until(lambda: "to watch: " in log.read_text(), 120.0, "the page")
        (page,) = re.findall(r"http://127\.0\.0\.1:\d+/\S+", log.read_text())
        assert status(page) == 200 and status(page.partition("?")[0]) == 403
        assert children["/robolearn/record"].wait(150) == 0, logs(tmp_path)
        for node in ("/robolearn/safety", "/robolearn/sim_arm"):
            children[node].send_signal(signal.SIGINT)
            assert children[node].wait(20) == 0, logs(tmp_path)
    data = Dataset.open(out)
    assert data.success.tolist() == [True] and len(data.action) > 20


@pytest.mark.realtime
def test_a_lesson_in_simulation_waits_for_its_person_and_ends(
    compiled: None, launch: Launch, policy: Path, tmp_path: Path
) -> None:
    """The actor's node has started its learner, and serves the person's page; nothing moves before START."""
    out = tmp_path / "run"
    started = launch("hil", device="browser", port="0", policy=str(policy), out=str(out), task="lift").started
    page = out / "spool" / "teleop"
    with spawned(started, tmp_path) as children, Background(DOMAIN) as ros:
        operator = SafetyClient(ros)
        try:
            wait_until(lambda: {p.node for p in started} <= nodes(operator) and page.exists(), 120.0, "all nodes")
            wait_until(lambda: operator.report is not None, 30.0, "the safety node")
            assert operator.state == "disarmed", operator.state
            where = urllib.parse.urlsplit(page.read_text().strip())
            socket.create_connection((where.hostname or "", where.port or 0), 10.0).close()
            assert "listens" in (out / "logs" / "learner.log").read_text()
            codes = interrupted(children, 60, tmp_path)
        except Exception as error:
            pytest.fail(f"{error}\n{logs(tmp_path)}")
    assert codes == dict.fromkeys(codes, 0), logs(tmp_path)
    assert list((out / "state").glob("state-*/meta.json")) and not page.exists()


@pytest.mark.parametrize(
    ("view", "says"), [("brwoser", "did you mean browser?"), ("window", "--view browser prints an address")]
)
def test_a_page_that_cannot_be_ends_the_recorder_before_it_writes(
    launch: Launch, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, view: str, says: str
) -> None:
    for name in ("DISPLAY", "WAYLAND_DISPLAY"):
        monkeypatch.delenv(name, raising=False)
    (recorder, *_) = launch("record", teleop="browser", out=str(tmp_path / "set"), view=view, port="0").started
    with spawned([recorder], tmp_path) as children:
        assert children["/robolearn/record"].wait(60) == 2, logs(tmp_path)
    assert says in logs(tmp_path) and not (tmp_path / "set").exists()


def test_a_gripper_that_has_a_topic_of_its_own_needs_no_node(launch: Launch, tmp_path: Path) -> None:
    (gripper,) = (p for p in launch("arm", robot="ur5e").started if p.executable == "gripper_node")
    with spawned([gripper], tmp_path) as children:
        assert children["/robolearn/gripper"].wait(60) == 0
    assert "ur5e has no gripper.action: nothing to do" in logs(tmp_path)


@pytest.mark.realtime
def test_an_arm_in_its_namespace_has_its_filter_and_no_gripper_node_to_wait_for(
    compiled: None, launch: Launch, tmp_path: Path
) -> None:
    started = launch("arm", robot="so101", namespace="follower/robolearn").started
    assert [process.executable for process in started] == ["safety_node", "gripper_node"]
    with spawned(started, tmp_path) as children, Background(DOMAIN) as ros:
        assert children["/follower/robolearn/gripper"].wait(120) == 0, logs(tmp_path)
        operator = SafetyClient(ros, station="/follower")
        wait_until(lambda: operator.report is not None, 120.0, "the safety node")
        children["/follower/robolearn/safety"].send_signal(signal.SIGINT)
        assert children["/follower/robolearn/safety"].wait(30) == 0, logs(tmp_path)


def test_a_wrong_contract_ends_the_safety_node_and_with_it_everything(launch: Launch, tmp_path: Path) -> None:
    started = launch("arm", robot="fr33").started
    (safety,) = (process for process in started if process.executable == "safety_node")
    assert safety.shutdown
    with spawned([safety], tmp_path) as children:
        assert children["/robolearn/safety"].wait(60) == 2
    assert "fr33" in logs(tmp_path) and "did you mean fr3?" in logs(tmp_path)
