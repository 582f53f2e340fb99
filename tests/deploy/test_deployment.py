"""What a deployment starts, waits for and asks: against clients and operators that are written down beforehand."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from types import MappingProxyType, SimpleNamespace
from typing import Any, ClassVar

import pytest
import torch
import yaml

from hardware.node_parameters import PolicyParameters
from robolearn.cli.main import main
from robolearn.core import BadInput, RobolearnError
from robolearn.deploy import Deployment, NodeDied, Simulation, deployment
from robolearn.deploy.deployment import programs, wait_ready
from robolearn.deploy.nodes import load
from robolearn.deploy.processes import check_domain, choose_domain, warn_of_enclaves
from robolearn.deploy.session import EpisodeResult, RealArm, SimulatedArm
from robots.stations import CONTRACTS, load_contract
from robots.stations.folder import keep


def station(simulated: bool, **changes: Any) -> Deployment:
    contract = load_contract("sim" if simulated else "fr3")
    if not simulated:  # its hand's actions are not installed here
        assert contract.gripper is not None
        contract = replace(contract, gripper=replace(contract.gripper, action=None))
    simulation = None
    if simulated:
        contract = contract.with_objects(("cube_x", "cube_y"))
        simulation = Simulation("lift", ("my.arm", "--fast"), 25.0)
    settings: dict[str, Any] = {"policy": "runs/bc", "seed": 7, "contract": contract.name, **changes}
    deploys = {name: settings.pop(name) for name in ("dry_run", "enclaves") if name in settings}
    policy = PolicyParameters(**settings)
    return Deployment(policy=policy, contract=contract, episodes=3, limit_s=30.0, simulation=simulation, **deploys)


def flags(command: tuple[str, ...]) -> dict[str, str]:
    words = command[command.index("--contract") :]
    return dict(zip(words[::2], words[1::2], strict=True))


def test_the_nodes_of_a_simulated_arm_in_the_order_in_which_they_end() -> None:
    policy, streamer, safety, arm = programs(station(True, device="cuda:1", dry_run=True))
    assert [p.name for p in (policy, streamer, safety, arm)] == ["policy", "streamer", "safety", "sim_arm"]
    assert policy.command[1:5] == ("-P", "-m", "robolearn.deploy.nodes", "policy")
    assert arm.command[3:5] == ("my.arm", "--fast")
    assert all(flags(p.command)["--contract"] == "sim" for p in (policy, streamer, safety, arm))
    asked = flags(policy.command)
    assert asked["--device"] == "cuda:1" and asked["--policy"] == "runs/bc" and asked["--seed"] == "7"
    assert asked["--objects"] == "cube_x,cube_y"
    assert "--grace-ms" not in flags(streamer.command) and flags(safety.command)["--dry-run"] == "true"
    assert flags(arm.command)["--task"] == "lift" and flags(arm.command)["--seed"] == "7"


def test_the_policy_node_is_told_goals_and_how_to_sample() -> None:
    told = {"goals": "data/set", "goal_choice": "drawn", "denoise_steps": 3, "guidance": 2.0, "guide": "runs/critics"}
    asked = flags(programs(station(True, **told))[0].command)
    wanted = {"--goals": "data/set", "--goal-choice": "drawn", "--denoise-steps": "3", "--guidance": "2.0"}
    wanted |= {"--guide": "runs/critics"}
    assert {key: asked.get(key) for key in wanted} == wanted
    assert not wanted.keys() & flags(programs(station(True))[0].command).keys()


@pytest.mark.long
def test_files_of_the_current_folder_are_no_part_of_our_nodes(tmp_path: Path) -> None:
    """Somebody's own hardware.py beside a policy is what they call it, and must not stand between policy and arm."""
    for name in ("hardware", "robots", "numpy"):
        (tmp_path / f"{name}.py").write_text(f"raise SystemExit('{name}.py of the current folder')")
    for program in programs(station(True)):
        refused = program.command[: program.command.index("--contract")]
        refused = refused if program.name != "sim_arm" else (*refused[:3], "robolearn.bench.emulators.node")
        done = subprocess.run([*refused, "--nothing", "1"], cwd=tmp_path, capture_output=True, text=True, timeout=120)
        assert done.returncode == 2 and "flag: got --nothing" in done.stderr, done.stderr


def test_the_nodes_of_a_real_arm() -> None:
    policy, streamer, safety = programs(station(False))
    assert flags(policy.command)["--device"] == "auto" and "--objects" not in flags(policy.command)
    assert "--grace-ms" not in flags(streamer.command) and flags(safety.command)["--dry-run"] == "false"


def test_a_gripper_whose_actions_are_not_installed_is_refused_before_anything_starts(monkeypatch) -> None:
    monkeypatch.setitem(sys.modules, "franka_msgs.action", None)
    real = replace(station(False), contract=load_contract("fr3"))
    with pytest.raises(BadInput, match="got franka_msgs/action/Grasp, which is not installed, expected the package"):
        programs(real)
    assert [p.name for p in programs(replace(real, dry_run=True))] == ["policy", "streamer", "safety"]
    simulated = replace(real, contract=replace(real.contract, simulated=True))
    assert len(programs(simulated)) == 3, "the double follows the topic"


def test_each_node_runs_in_its_own_enclave_where_that_is_asked_for(monkeypatch) -> None:
    monkeypatch.setattr("hardware.ros2.gripper_node.has_actions", lambda contract: True)
    real = replace(station(False), contract=replace(load_contract("fr3"), namespace="/left"), enclaves=True)
    found = {p.name: p.command[-3:] for p in programs(real)}
    assert set(found) == {"policy", "streamer", "safety", "gripper"}
    assert found == {name: ("--ros-args", "--enclave", f"/left/robolearn/{name}") for name in found}
    assert not any("--enclave" in p.command for p in programs(replace(real, enclaves=False)))


def test_a_device_that_is_not_there_is_refused_before_anything_starts(tmp_path, monkeypatch) -> None:
    monkeypatch.setattr(deployment, "StackProcesses", None)
    with pytest.raises(BadInput, match="device: got tpu; available: auto, cpu"):
        deployment.deploy(station(True, device="tpu"), Person(), domain=None, logs=tmp_path, quiet=True)
    with pytest.raises(BadInput, match="device: got tpu; available: auto, cpu"):
        load(PolicyParameters(policy="runs/bc", device="tpu"))


@pytest.mark.skipif(torch.cuda.is_available(), reason="a GPU is there")
def test_a_gpu_that_is_not_there_is_refused_with_the_reason(tmp_path) -> None:
    with pytest.raises(BadInput, match=r"got cuda, expected auto or cpu here\. torch .* (CPUs alone|no GPU)") as caught:
        deployment.deploy(station(True, device="cuda"), Person(), domain=None, logs=tmp_path, quiet=True)
    assert "did you mean" not in str(caught.value)


def test_the_policy_node_opens_its_policy_where_it_was_asked_to(monkeypatch) -> None:
    from policies.storage import loading

    asked: list[tuple[Any, ...]] = []

    def opened(*where: Any, on_arm: bool) -> tuple[Any, ...]:
        asked.append((*where, on_arm))
        return asked[-1]

    monkeypatch.setattr(loading, "open_policy", opened)
    assert load(PolicyParameters(policy="runs/bc", device="cpu")) is asked[0]
    assert asked[0][:2] == ("runs/bc", "cpu") and asked[0][-1] is True
    with pytest.raises(BadInput):
        load(PolicyParameters(policy="runs/bc", device="cpu", guide="runs/none"))
    assert asked[1][-1] is False
    with pytest.raises(BadInput, match="parameter policy: missing"):
        load(PolicyParameters(device="cpu"))


# --- the nodes come up ---------------------------------------------------------------------------------------


class Client:
    """A safety node's client; `stages`: what is heard at each attempt; ready after the last one."""

    def __init__(self, *stages: dict[str, Any]) -> None:
        self.stages = list(stages)
        self.report, self.streamer, self.policy = None, {}, {}

    def wait_ready(self, timeout_s: float) -> None:
        if not self.stages:
            return
        heard = self.stages.pop(0) if len(self.stages) > 1 or not self.stages[0].get("for_ever") else self.stages[0]
        for name, value in heard.items():
            setattr(self, name, value)
        raise RobolearnError("not yet")


ALIVE = SimpleNamespace(check=lambda: None)
UP = {"report": "there", "streamer": {"reason": ""}, "policy": {"reason": "no joint state"}}


def test_waiting_ends_when_all_are_ready() -> None:
    wait_ready(Client({}, UP), ALIVE, simulated=True)  # type: ignore[arg-type]


def test_a_node_that_is_never_heard_is_named() -> None:
    client = Client({"report": "there", "streamer": {"ready": True}, "for_ever": True})
    with pytest.raises(RobolearnError, match=r"nothing heard of policy for 0\.02 s"):
        wait_ready(client, ALIVE, simulated=True, start_s=0.02)  # type: ignore[arg-type]


@pytest.mark.parametrize(("simulated", "asks"), [(True, False), (False, True)])
def test_what_a_node_lacks_is_reported(monkeypatch, simulated: bool, asks: bool) -> None:
    monkeypatch.setattr(deployment, "SENSORS_S", 0.02)
    monkeypatch.setattr(deployment, "SIM_SENSORS_S", 0.02)
    monkeypatch.setenv("ROS_DOMAIN_ID", "17")
    with pytest.raises(RobolearnError, match=r"not ready after 0\.02 s: no joint state") as error:
        wait_ready(Client({**UP, "for_ever": True}), ALIVE, simulated=simulated)  # type: ignore[arg-type]
    assert ("does the arm's driver run, in ROS domain 17?" in str(error.value)) == asks


def test_a_node_that_dies_meanwhile_is_the_reason() -> None:
    def check() -> None:
        raise NodeDied("policy", 2, "no such policy")

    with pytest.raises(NodeDied, match="the policy node ended with exit code 2: no such policy"):
        wait_ready(Client(UP), SimpleNamespace(check=check), simulated=True)  # type: ignore[arg-type]


# --- arms ----------------------------------------------------------------------------------------------------


class Person:
    """An operator who writes down what is asked of them."""

    def __init__(self, *, leave: bool = True, ends: bool = False, success: bool = True) -> None:
        self.leave, self.ends, self.success = leave, ends, success
        self.asked: list[str] = []

    def confirm_motion(self, robot: str) -> bool:
        self.asked.append(f"confirm {robot}")
        return self.leave

    def restore_scene(self) -> None:
        self.asked.append("restore")

    def ended_episode(self) -> bool:
        return self.ends

    def confirm_success(self) -> bool:
        self.asked.append("judge")
        return self.success


def test_leave_to_move_is_asked_once_and_the_scene_restored_for_every_further_episode() -> None:
    person = Person()
    arm = RealArm("fr3", person)
    for _ in range(3):
        arm.begin()
        assert arm.judge()
    assert person.asked == ["confirm fr3", "judge", "restore", "judge", "restore", "judge"]
    assert not arm.over() and RealArm("fr3", Person(ends=True)).over()
    assert not RealArm("fr3", Person(success=False)).judge()


def test_an_arm_that_goes_home_by_itself_does_so_after_leave_and_before_the_scene_is_restored() -> None:
    person = Person()
    arm = RealArm("fr3", person, lambda: person.asked.append("home"))
    for _ in range(2):
        arm.begin()
        assert arm.judge()
    assert person.asked == ["confirm fr3", "home", "judge", "home", "restore", "judge"]


def test_without_leave_no_episode_begins_and_it_is_asked_again() -> None:
    person = Person(leave=False)
    arm = RealArm("fr3", person)
    for _ in range(2):
        with pytest.raises(RobolearnError, match="not confirmed: the arm was not armed"):
            arm.begin()
    assert person.asked == ["confirm fr3"] * 2


class SimNode:
    """The client's side of a simulated arm's node."""

    def __init__(self) -> None:
        self.episode, self.works, self.listeners = -1, True, {}

    def subscribe_json(self, topic: str, callback: Any, depth: int = 1) -> None:
        self.listeners[topic.rpartition("/")[2]] = callback

    def call(self, service: str, timeout_s: float = 5.0) -> tuple[bool, str]:
        self.episode += 1
        return self.works, json.dumps({"episode": self.episode}) if self.works else "no world"


def test_episodes_of_the_simulated_arm(monkeypatch) -> None:
    monkeypatch.setattr("robolearn.deploy.session.SETTLE_S", 0.0)
    node = SimNode()
    arm = SimulatedArm(node)
    arm.begin()
    assert not arm.over()
    with pytest.raises(RobolearnError, match="has not ended episode 0"):
        arm.judge()
    node.listeners["episode"]({"episode": 0, "success": 1, "truncated": False, "steps": 40})
    assert arm.over() and arm.judge() and not arm.truncated()
    arm.begin()
    assert not arm.over(), "the end of the episode before is not the end of this one"
    node.listeners["episode"]({"episode": 1, "success": False, "truncated": True, "steps": 64})
    assert arm.over() and not arm.judge() and arm.truncated()
    node.listeners["monitor"]({"violations": 0})
    assert arm.monitor == {"violations": 0}
    node.works = False
    with pytest.raises(RobolearnError, match="does not begin an episode: no world"):
        arm.begin()


# --- what is left of a deployment that ends before its time -----------------------------------------------------


class Nodes:
    """Processes that come up and end as asked."""

    codes: Mapping[str, int] = MappingProxyType({})

    def __init__(self, *_: Any) -> None:
        pass

    def __enter__(self) -> Nodes:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def check(self) -> None:
        pass


class Station(Nodes):
    """The client of a safety node that arms whenever it is asked to; `said` is what was published."""

    said: ClassVar[list[tuple[str, dict[str, Any]]]] = []

    def publish_json(self, topic: str) -> Callable[[dict[str, Any]], None]:
        return lambda message: self.said.append((topic, message))

    report = SimpleNamespace(
        values={"commands": "7", "latency_p50_ms": "9.5", "latency_p99_ms": "11.0", "refusals": '{"obstacle": 2}'}
    )

    policy: ClassVar[dict[str, Any]] = {}

    def wait_ready(self, timeout_s: float) -> None:
        """They are."""


class Latched(RobolearnError):
    pass


def doubles(monkeypatch: pytest.MonkeyPatch, end: BaseException | None, *good: bool) -> None:
    """Nodes that are ready, and episodes of which those of `good` are judged before `end` comes."""
    import hardware.ros2.safety_client

    def episodes(*_: Any, **__: Any) -> Any:
        yield from (EpisodeResult(i, success, 2.0) for i, success in enumerate(good))
        if end is not None:
            raise end

    monkeypatch.setenv("ROS_DOMAIN_ID", "17")
    monkeypatch.setattr(hardware.ros2.safety_client, "SafetyClient", lambda **_: Station())
    for name, double in {
        "checked": lambda asked: asked, "StackProcesses": Nodes, "run_session": episodes,
    }.items():  # fmt: skip
        monkeypatch.setattr(deployment, name, double)


def deployed(monkeypatch: pytest.MonkeyPatch, logs: Path | None, end: BaseException | None, *good: bool) -> dict:
    """The result of 5 episodes, of which those of `good` are judged before `end` comes."""
    doubles(monkeypatch, end, *good)
    real = replace(station(False), episodes=5)
    return deployment.deploy(real, Person(), domain=None, logs=logs, quiet=True)


def test_a_stop_takes_nothing_away_from_the_episodes_before(monkeypatch, tmp_path: Path) -> None:
    stop = Latched("episode 3: the safety filter stopped the arm: singularity: …")
    result = deployed(monkeypatch, tmp_path, stop, True, True, False)
    assert result["ended"] == str(stop) and result["asked"] == 5
    assert result["success"]["episodes"] == 3 and result["success"]["rate"] == pytest.approx(2 / 3)
    assert result["success"]["low"] == pytest.approx(0.0943, abs=1e-3), "Clopper and Pearson's of 2 of 3"
    assert result["latency_ms"]["p50"] == 9.5 and result["filter"]["commands"] == 7 and len(result["episode_s"]) == 3
    assert result["timed_out"] == [False] * 3
    said = [("rollout", {"outcome": outcome, "seconds": 2.0}) for outcome in ("success", "success", "failure")]
    assert Station.said[-3:] == said, "films and recordings hear each outcome"
    assert result["filter"]["refusals"] == {"obstacle": 2} and result["succeeded"] == [True, True, False]
    assert json.loads((tmp_path / "result.json").read_text()) == json.loads(json.dumps(result)), "written, too"


def lab(folder: Path) -> Path:
    """The folder of a station with a real arm, kept as version 1."""
    folder.mkdir()
    content = yaml.safe_load((CONTRACTS / "fr3.yaml").read_text())
    content["gripper"].pop("action")
    (folder / "station.yaml").write_text(yaml.safe_dump(content))
    keep(folder, "new")
    return folder


def test_deploy_prints_an_unfamiliar_posture_and_the_version_of_its_station(
    monkeypatch, tmp_path: Path, capsys: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture
) -> None:
    posture = "not seen by the policy: fr3_joint1 at 2.500"
    monkeypatch.setattr(Station, "policy", {"ready": True, "unfamiliar": posture})
    words = [
        "deploy",
        "--policy",
        "runs/bc",
        "--robot",
        str(lab(tmp_path / "lab")),
        "--episodes",
        "2",
        "--yes",
        "--json",
    ]
    doubles(monkeypatch, None, True, False)
    assert main(words) == 0
    assert json.loads(capsys.readouterr().out.splitlines()[-1])["station_version"] == "1"
    said = [one for one in caplog.records if one.getMessage() == posture]
    assert len(said) == 1 and said[0].levelname == "WARNING", "printed once, without --verbose"
    caplog.clear()
    monkeypatch.setattr(Station, "policy", {"ready": True, "unfamiliar": ""})
    (tmp_path / "lab" / "station.yaml").open("a").write("# new fingers\n")
    doubles(monkeypatch, None, True, False)
    assert main(words) == 0 and not caplog.records
    version = json.loads(capsys.readouterr().out.splitlines()[-1])["station_version"]
    assert version == "1, changed since: station.yaml"
    monkeypatch.setenv("ROS_DOMAIN_ID", "17")
    assert deployed(monkeypatch, None, None, *[True] * 5)["station_version"] is None, "a shipped contract has none"


@pytest.mark.parametrize("stops", [False, True])
def test_what_a_reward_model_called_done_stands_beside_what_the_person_said(
    stops: bool, monkeypatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The model calls two of four episodes done, and has no verdict on the third; the fourth may be stopped."""
    verdicts = iter([True, True, None, False])

    class Judged:
        def __init__(self, *_: Any) -> None:
            self.given: list[bool | None] = []

    def episodes(_: Any, arm: Judged, *__: Any, **___: Any) -> Any:
        for i, success in enumerate((True, False, True, False)):
            if i < 3 or not stops:
                arm.given.append(next(verdicts))
            yield EpisodeResult(i, success, 2.0, stopped=stops and i == 3)
        if stops:
            raise Latched("the safety filter stopped the arm")

    doubles(monkeypatch, None)
    monkeypatch.setattr(deployment, "run_session", episodes)
    monkeypatch.setattr(deployment, "RewardVerdicts", Judged)
    robot = str(lab(tmp_path / "lab"))
    words = [
        "deploy",
        "--policy",
        "runs/bc",
        "--robot",
        robot,
        "--episodes",
        "4",
        "--yes",
        "--reward",
        "serve:desk:7000",
    ]
    (tmp_path / "logs").mkdir()
    assert main([*words, "--logs", str(tmp_path / "logs")]) == int(stops)
    shown = " ".join(capsys.readouterr().out.split())
    assert f"called 2 of {2 if stops else 3} done, the same as the other judge in {1 if stops else 2}" in shown
    called = json.loads((tmp_path / "logs" / "result.json").read_text())["called_done"]
    assert called == [True, True, None, None if stops else False]
    for wrong in ("nowhere", "key"):
        assert main([*words[:-1], wrong]) == 2
        assert "--reward: got" in capsys.readouterr().err


def test_the_policy_node_is_told_a_reward_model_that_ends_no_episode(tmp_path: Path) -> None:
    asked = flags(programs(station(True, reward="serve:desk:7000", reward_ends=False))[0].command)
    assert (asked["--reward"], asked["--reward-ends"]) == ("serve:desk:7000", "False")
    assert not {"--reward", "--reward-ends"} & flags(programs(station(True))[0].command).keys()


def test_enclaves_that_keep_nobody_out_are_named(monkeypatch, caplog: pytest.LogCaptureFixture) -> None:
    keys = {"ROS_SECURITY_ENABLE": "true", "ROS_SECURITY_KEYSTORE": "keys"}
    for name, value in keys.items():
        monkeypatch.setenv(name, value)
    warn_of_enclaves(True)
    assert not caplog.text
    for name, value in keys.items():
        monkeypatch.delenv(name)
        warn_of_enclaves(False)
        assert not caplog.text
        warn_of_enclaves(True)
        assert "nothing is secured" in caplog.text
        caplog.clear()
        monkeypatch.setenv(name, value)


def test_the_refusals_are_a_table(monkeypatch, capsys: pytest.CaptureFixture[str]) -> None:
    from rich.console import Console

    from robolearn.cli.deploy import Deploy

    for said, shown in (('{"obstacle": 2, "stop": 1}', "2 by obstacle, 1 by stop"), ("{}", "none"), ("?", "none")):
        monkeypatch.setitem(Station.report.values, "refusals", said)
        Deploy(policy=Path("p")).show(deployed(monkeypatch, None, None, *[True] * 5), Console(width=120))
        assert f"refusals: {shown}\n" in capsys.readouterr().out


def test_logs_are_kept_of_what_ended_before_its_time_only(monkeypatch) -> None:
    kept = deployed(monkeypatch, None, Latched("stopped"), True)["logs"]
    assert json.loads((Path(kept) / "result.json").read_text())["ended"] == "stopped"
    shutil.rmtree(kept)
    whole = deployed(monkeypatch, None, None, *[True] * 5)
    assert whole["ended"] is whole["logs"] is None and whole["success"]["rate"] == 1.0


def test_a_stop_before_anything_was_judged_is_an_error(monkeypatch, tmp_path: Path) -> None:
    with pytest.raises(Latched, match="not armed") as error:
        deployed(monkeypatch, tmp_path, Latched("not armed"))
    assert str(tmp_path) in error.value.__notes__[0]
    with pytest.raises(KeyboardInterrupt):
        deployed(monkeypatch, tmp_path, KeyboardInterrupt())


def test_ctrl_c_and_a_node_that_ends_badly_leave_what_was_judged(monkeypatch, tmp_path: Path) -> None:
    assert deployed(monkeypatch, tmp_path, KeyboardInterrupt(), True)["ended"] == deployment.INTERRUPTED
    monkeypatch.setattr(Nodes, "codes", {"policy": -9})
    assert deployed(monkeypatch, tmp_path, None, True)["ended"] == "nodes that did not end cleanly: {'policy': -9}"


# --- the domain ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("asked", "there", "simulated", "expected"),
    [(5, "9", True, "5"), (None, "9", True, "9"), (None, None, False, "0"), (0, "9", False, "0")],
)
def test_the_ros_domain(monkeypatch, asked: int | None, there: str | None, simulated: bool, expected: str) -> None:
    import os

    monkeypatch.delenv("ROS_DOMAIN_ID", raising=False)
    if there is not None:
        monkeypatch.setenv("ROS_DOMAIN_ID", there)
    choose_domain(asked, simulated)
    found = os.environ["ROS_DOMAIN_ID"]
    monkeypatch.setenv("ROS_DOMAIN_ID", found)  # so that it is restored
    assert found == expected


def test_a_domain_that_ros_does_not_have_is_refused() -> None:
    for domain in (-1, 233):
        with pytest.raises(BadInput, match=f"--domain: got {domain}, expected 0 to 232"):
            check_domain(domain)
