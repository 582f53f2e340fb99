"""`robolearn deploy` as people start it: a success, nodes killed in mid-motion, Ctrl-C, and what is refused."""

from __future__ import annotations

import contextlib
import json
import os
import re
import signal
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml

sys.path.insert(0, str(Path(__file__).parent))
sys.path.insert(0, str(Path(__file__).parents[1] / "hardware"))
from running import WAIT_S, Running
from stopping import at_rest, silence
from untrained import make_constant, make_policy

import hardware.ros2  # noqa: F401  (prepares the environment for rclpy)
from hardware.node_parameters import NodeParameters
from hardware.observing.monitor import LimitMonitor
from hardware.ros2 import messages, qos, topics
from hardware.ros2.process import Background, wait_until
from hardware.ros2.runtime import Node
from hardware.ros2.safety_client import SafetyClient
from hardware.safety import SafetyFilter, SafetyState
from policies.storage.checkpoint import load_policy, save_policy
from policies.wrappers.best_of_n import BestOfNConfig, BestOfNPolicy
from robots.stations import CONTRACTS, load_contract
from sim.registry import make_env

DOMAIN = int(os.environ["ROS_DOMAIN_ID"]) + 3
KILLED = ("policy", "safety")  # what asks for motion, and what brakes; any of the four: `test_faults_processes`


@pytest.fixture(scope="module")
def policy(tmp_path_factory: pytest.TempPathFactory) -> Path:
    interface: Any = make_env("lift", 1, threads=1).interface  # type: ignore[attr-defined]
    contract = load_contract("sim")
    # Machine code is cached on disk: made here, not while a deployment waits for it.
    SafetyFilter(contract.robot, contract.joints, contract.limits, 1.0 / contract.stream_hz)
    return make_policy(tmp_path_factory.mktemp("policy"), interface)


@pytest.fixture(scope="module")
def blind(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A policy that looks at the arm only."""
    return make_policy(tmp_path_factory.mktemp("blind"), load_contract("sim").with_cameras(()).interface)


@pytest.fixture(scope="module")
def critics(tmp_path_factory: pytest.TempPathFactory, policy: Path) -> Path:
    """Critics that nobody trained, of all that the simulated arm offers."""
    made = BestOfNPolicy(load_policy(policy), BestOfNConfig(width=16, depth=1))
    return save_policy(made, tmp_path_factory.mktemp("critics"))


@pytest.fixture(scope="module")
def away(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A policy that stretches the arm until it is stopped."""
    interface: Any = make_env("lift", 1, threads=1).interface  # type: ignore[attr-defined]
    return make_constant(tmp_path_factory.mktemp("away"), interface, dz=-1.0)


@pytest.fixture
def deploy(tmp_path: Path) -> Iterator[Callable[..., Running]]:
    started: list[Running] = []

    def start(*flags: object, domain: int = DOMAIN) -> Running:
        logs = tmp_path / f"{len(started)}" / "logs"
        started.append(Running(logs, "deploy", *flags, domain=domain))
        return started[-1]

    yield start
    for deployment in started:
        deployment.close()


class Witness(Node):
    """Hears the commands of the safety node, and its states."""

    def __init__(self, **options: Any) -> None:
        super().__init__("witness", NodeParameters(), **options)
        contract = load_contract("sim")
        self.period = 1.0 / contract.stream_hz
        self.begin()
        listening = qos.stream(lease_s=None, depth=200)
        kind = messages.message_type(contract.command.type)
        self.create_subscription(kind, contract.command.topic, self._on_command, listening)
        self.create_subscription(messages.DiagnosticArray, topics.SAFETY_STATE, self._on_safety, qos.latched())

    def begin(self) -> None:
        """Forget what it heard: a deployment begins."""
        self.monitor = LimitMonitor.of(load_contract("sim").robot, self.period)
        self.sent: list[float] = []
        self.commands: list[tuple[float, np.ndarray]] = []
        self.states: list[str] = []

    def _on_command(self, message: Any, info: Any) -> None:
        self.commands.append((time.monotonic(), np.array(message.data)))
        self.sent.append(1e-9 * info["source_timestamp"])  # not when it was read: this process may be held up
        self.monitor.command(message.data, self.sent[-1])

    def violations(self) -> dict[str, int]:
        """What it saw over a limit, by kind.

        A command that it missed, held up by a busy machine, looks like a step: then changes of speed are not judged,
        and speed is by the times of sending.
        """
        seen = self.monitor.summary()["violations_by_kind"]
        after = np.diff(self.sent)
        if len(after) and after.max() > 1.8 * self.period:
            way = np.abs(np.diff([q[:7] for _, q in self.commands], axis=0))
            allowed = np.array(load_contract("sim").robot.velocity) * (after + self.period)[:, None]
            fast = int((way > allowed).any(1).sum())
            seen = {kind: seen[kind] for kind in ("non_finite", "length", "position")} | {"velocity": fast}
        return {kind: count for kind, count in seen.items() if count}

    def _on_safety(self, message: Any) -> None:
        report = messages.read_safety_report(message)
        if report is not None and (not self.states or self.states[-1] != report.state):
            self.states.append(report.state)

    def moving(self, deployment: Running) -> bool:
        """Wait until the arm moves, or the deployment ends; whether it moves."""

        def moves() -> bool:
            if deployment.process.poll() is not None:
                return True
            found = [q for _, q in self.commands[-60:]]
            return len(found) == 60 and float(np.ptp(found, axis=0).max()) > 0.01

        wait_until(moves, WAIT_S, f"motion; {deployment.log()}")
        return deployment.process.poll() is None


@pytest.fixture
def witness() -> Iterator[Witness]:
    with Background(DOMAIN) as background:
        yield background.add(Witness(context=background.context))


def in_motion(deploy: Callable[..., Running], policy: Path, witness: Witness) -> Running:
    """A deployment whose arm moves.

    A machine that stands still for 0.1 s before that stops the arm, as it must; then the next deployment is the one to
    look at.
    """
    for _ in range(3):
        witness.begin()
        deployment = deploy("--policy", policy, "--episodes", 3)
        if witness.moving(deployment):
            return deployment
        code, out, err = deployment.end()
        stalled = ("silent for 0.1", "the joint state is", "the target is", "did not run for")
        assert code == 1 and any(words in err for words in stalled), (code, out, err)
        silence(witness.commands)
    pytest.fail(f"no motion in three deployments: {err}")


def segments(running: Running) -> set[Path]:
    """Shared memory of Fast DDS that the nodes of `running` have made while it ran."""
    found: set[Path] = set()
    while running.process.poll() is None:
        for node in running.left:
            with contextlib.suppress(OSError):  # it has ended
                maps = Path(f"/proc/{node}/maps").read_text()
                found |= {Path(name) for name in re.findall(r"/dev/shm/fastdds_[0-9a-f]{16}\b", maps)}
        time.sleep(0.1)
    return found


@pytest.mark.long
@pytest.mark.realtime
def test_an_untrained_policy_on_the_simulated_arm(deploy: Callable[..., Running], policy: Path) -> None:
    deployment = deploy("--policy", policy, "--episodes", 1)
    shared = segments(deployment)
    code, out, err = deployment.end()
    assert code == 0, (err, deployment.log())
    result = json.loads(out.splitlines()[-1])
    assert {"success", "violations", "monitor", "latency_ms", "filter", "wall_s"} <= result.keys()
    assert result["success"].keys() == {"rate", "low", "high", "episodes"} and result["success"]["episodes"] == 1
    assert result["violations"] == 0 and result["monitor"]["commands"] > 100, result["monitor"]
    assert 0 < result["latency_ms"]["p50"] <= result["latency_ms"]["p99"]
    assert {"clamped", "refusals", "commands", "skipped_ticks"} == result["filter"].keys()
    assert result["wall_s"]["total"] > 0 and result["robot"] == "sim" and result["task"] == "lift"
    assert not deployment.left and shared and not any(segment.exists() for segment in shared)
    assert "leaked" not in deployment.log() and "Traceback" not in deployment.log(), deployment.log()


@pytest.mark.long
@pytest.mark.realtime
def test_a_slow_policy_goes_on_with_what_it_predicted(deploy: Callable[..., Running], tmp_path: Path) -> None:
    """Three steps late: three of the tail bridge them until the next chunk is there; without them it would stop."""
    interface: Any = make_env("lift", 1, threads=1).interface  # type: ignore[attr-defined]
    slow = make_policy(tmp_path / "slow", interface, horizon=12)
    code, out, err = deploy("--policy", slow, "--episodes", 1, "--delay-steps", 3).end()
    assert code == 0, err
    result = json.loads(out.splitlines()[-1])
    assert result["ended"] is None and result["violations"] == 0 and result["monitor"]["commands"] > 100
    assert 150 < result["latency_ms"]["p50"] < 250


@pytest.mark.long
@pytest.mark.realtime
def test_critics_choose_for_a_policy_that_sees_less(deploy: Callable[..., Running], critics: Path, blind: Path) -> None:
    code, out, err = deploy("--policy", blind, "--guide", critics, "--guide-samples", 16, "--episodes", 1).end()
    assert code == 0, err
    result = json.loads(out.splitlines()[-1])
    assert result["ended"] is None and result["violations"] == 0 and result["monitor"]["commands"] > 100


@pytest.mark.long
@pytest.mark.realtime
@pytest.mark.parametrize("node", KILLED)
def test_a_node_killed_in_mid_motion(deploy: Callable[..., Running], policy: Path, witness: Witness, node: str) -> None:
    deployment = in_motion(deploy, policy, witness)
    os.kill(deployment.pid(node), signal.SIGKILL)
    killed = time.monotonic()
    code, out, err = deployment.end()
    assert code == 1 and out == "", (out, err)
    assert f"the {node} node was killed by SIGKILL" in err.splitlines()[-1] and str(deployment.logs) in err
    assert "Traceback" not in err and not deployment.left
    silence(witness.commands)
    assert witness.commands[-1][0] - killed < 2.0, "braked at once"
    if node != "safety":  # a filter that is gone says nothing more: the arm stays at the last command
        assert at_rest(witness.commands, load_contract("sim")), witness.commands[-3:]
        assert witness.states[-1] in ("latched", "disarmed"), witness.states
    assert not witness.violations(), witness.violations()


@pytest.mark.long
@pytest.mark.realtime
def test_a_safety_node_that_hangs_is_reported(deploy: Callable[..., Running], policy: Path, witness: Witness) -> None:
    """Within a second on a machine that has time, and long before its process is ended."""
    deployment = in_motion(deploy, policy, witness)
    os.kill(deployment.pid("safety"), signal.SIGSTOP)
    halted, line = time.monotonic(), ""
    assert deployment.process.stderr is not None
    while "silent" not in line:
        line = deployment.process.stderr.readline()
        assert line, "it has ended without a word"
    assert "the safety node is silent" in line and time.monotonic() - halted < 3.0, time.monotonic() - halted
    print(f"reported after {time.monotonic() - halted:.2f} s")
    code, out, err = deployment.end()
    assert code == 1 and out == "" and "the safety node is silent" in err.splitlines()[-1], (out, err)
    assert not deployment.left and not witness.violations(), witness.violations()


@pytest.mark.long
@pytest.mark.realtime
def test_ctrl_c_in_mid_motion(deploy: Callable[..., Running], policy: Path, witness: Witness) -> None:
    deployment = in_motion(deploy, policy, witness)
    pressed = time.monotonic()
    os.killpg(deployment.process.pid, signal.SIGINT)
    code, out, err = deployment.end()
    assert code == 130 and out == "" and "stopped" in err and "Traceback" not in err, (code, err)
    assert not deployment.left
    silence(witness.commands)
    assert witness.commands[-1][0] - pressed < 2.0
    assert at_rest(witness.commands, load_contract("sim")), witness.commands[-3:]
    assert not witness.violations(), witness.violations()


@pytest.mark.long
@pytest.mark.realtime
def test_a_stop_ends_a_deployment_and_its_episode_counts(deploy: Callable[..., Running], away: Path) -> None:
    one = deploy("--policy", away, "--episodes", 3)
    code, out, err = one.end()
    result = json.loads(out.splitlines()[-1])
    assert code == 1 and result["success"]["episodes"] == 1 and result["success"]["rate"] == 0.0, (code, out, err)
    assert result["ended"].startswith("episode 1: the safety filter stopped the arm: singularity"), result["ended"]
    assert result["stopped"] is True
    assert err.splitlines()[-1] == f"robolearn: error: {result['ended']} (logs: {one.logs})" and not one.left
    assert result["violations"] == 0 and result["monitor"]["commands"] > 10, "braking is judged, too"
    assert json.loads((one.logs / "result.json").read_text()) == result


@pytest.mark.long
@pytest.mark.realtime
def test_a_stop_in_the_second_episode_leaves_the_first(deploy: Callable[..., Running], policy: Path) -> None:
    with Background(DOMAIN) as background:
        somebody = SafetyClient(background, name="somebody")
        one = deploy("--policy", policy, "--episodes", 3)
        wait_until(
            lambda: [r.state for r in somebody.reports].count(SafetyState.ARMED) == 2, WAIT_S, f"episode 2; {one.log()}"
        )
        somebody.estop()
        code, out, err = one.end()
    result = json.loads(out.splitlines()[-1])
    assert code == 1 and result["ended"].startswith("episode 2: ") and "e-stop" in result["ended"], (result, err)
    assert result["success"]["episodes"] == len(result["episode_s"]) == 2 and result["asked"] == 3
    assert [r.state for r in somebody.reports].count(SafetyState.ARMED) == 2, "nothing arms anew by itself"


# --- refused ------------------------------------------------------------------------------------------------------


def edited(tmp_path: Path, name: str, **changes: Any) -> Path:
    """A copy of the simulated arm's contract with some of it changed; None takes a key out."""
    content = {**yaml.safe_load((CONTRACTS / "sim.yaml").read_text()), **changes}
    path = tmp_path / f"{name}.yaml"
    path.write_text(yaml.safe_dump({key: value for key, value in content.items() if value is not None}))
    return path


def refused(capsys: pytest.CaptureFixture[str], *flags: object) -> str:
    """The line that the command ends with, in this process: it starts nothing."""
    from robolearn.cli.main import main

    assert main(["deploy", *map(str, flags)]) == 2
    out, err = capsys.readouterr()
    (line,) = err.splitlines()
    assert out == "" and line.startswith("robolearn: error: ")
    return line


JOINTS = list(load_contract("sim").joints)


@pytest.mark.long
@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"strem_hz": 200}, ("strem_hz", "did you mean stream_hz")),
        ({"joints": [JOINTS[1], JOINTS[0], *JOINTS[2:]]}, ("joints", "panda_joint2, panda_joint1")),
        ({"joints": JOINTS[:6]}, ("joints", "7")),
        ({"robot": "pandaa"}, ("pandaa", "did you mean panda")),
    ],
)
def test_a_contract_with_a_mistake(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, policy: Path, changes: dict[str, Any], says: tuple[str, ...]
) -> None:
    path = edited(tmp_path, "mine", **changes)
    line = refused(capsys, "--policy", policy, "--robot", path, "--yes")
    assert all(word in line for word in says), line


def test_no_name_of_a_file_makes_an_arm_a_simulated_one(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, policy: Path, blind: Path
) -> None:
    """Of an arm that nobody calls simulated one is asked before it moves, and here is nobody."""
    path = edited(tmp_path, "sim", simulated=None)
    assert "or with --yes where" in refused(capsys, "--policy", blind, "--robot", path)
    wrong = edited(tmp_path, "mine", simulated="perhaps")
    assert "simulated: got perhaps, expected true or false" in refused(capsys, "--policy", policy, "--robot", wrong)
    # By any other name it is simulated, and what is wrong then is its task.
    mine = edited(tmp_path, "mine")
    assert "task of the simulated arm" in refused(capsys, "--policy", policy, "--robot", mine, "--task", "lifd")


def test_what_does_not_fit_is_named(capsys: pytest.CaptureFixture[str], policy: Path, blind: Path) -> None:
    assert "expected a run whose critics judge chunks" in refused(capsys, "--policy", policy, "--guide", blind)
    for one in (policy, blind):  # with leave to move, and where nobody could give it: no terminal would help
        assert "it was made for panda, this is fr3" in refused(capsys, "--policy", one, "--robot", "fr3", "--yes")
        assert "it was made for panda, this is fr3" in refused(capsys, "--policy", one, "--robot", "fr3")
    assert "did you mean lift" in refused(capsys, "--policy", policy, "--task", "lifd")
    assert "/nowhere" in refused(capsys, "--policy", "/nowhere")
    assert "did you mean fr3" in refused(capsys, "--policy", policy, "--robot", "fr33")
    assert "--episodes" in refused(capsys, "--policy", policy, "--episodes", 0)
    assert "--delay-steps: got -1" in refused(capsys, "--policy", policy, "--delay-steps", -1)
    late = ("--policy", policy, "--robot", "fr3", "--yes", "--delay-steps", 2)
    assert "fr3, a real arm: got 2, expected 0, or --rehearse" in refused(capsys, *late)
