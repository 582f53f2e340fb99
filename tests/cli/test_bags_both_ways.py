"""A data set through a bag and back: interventions, rewards and how episodes ended come back as they were."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from rosbags.highlevel import AnyReader
from rosbags.rosbag2 import StoragePlugin, Writer

from robolearn.cli.main import main
from robolearn.core import BadInput, Episode
from robolearn.data import Dataset, EpisodeWriter
from robolearn.data.convert.bags import EPISODE_EVENTS
from robolearn.data.convert.bags.recording import Ending, ending_of
from robolearn.data.convert.bags.write import Messages
from robolearn.data.lerobot.features import FRAME
from robolearn.data.validate import validate
from robots import make_control
from robots.spec import proprio
from robots.stations import JOINT_STATE, STRING, Contract, load_contract

pytestmark = pytest.mark.long

LENGTH = 30
FELT = {
    "external_torque": f"contact: {{topic: /felt, type: sensor_msgs/msg/JointState, max_torque: {[5.0] * 7}}}\n",
    "wrench": "contact: {topic: /felt, type: geometry_msgs/msg/WrenchStamped, max_force: 40, max_moment: 5}\n",
}
CONTRACT = """
robot: panda
action_kind: joint_position
control_hz: 20
stream_hz: 200
joints: [{joints}]
joint_states: {{topic: /joint_states, type: sensor_msgs/msg/JointState, max_age_s: 0.1}}
command: {{topic: /arm/command, type: std_msgs/msg/Float64MultiArray, max_age_s: 0.1}}
gripper: {{joints: [finger], topic: /hand/command, type: std_msgs/msg/Float64MultiArray, unit: opening}}
"""


def run(*args: Any) -> int:
    return main([str(arg) for arg in args])


@pytest.fixture
def station(tmp_path: Path) -> Path:
    from robots import ROBOTS

    path = tmp_path / "station.yaml"
    path.write_text(CONTRACT.format(joints=", ".join(ROBOTS["panda"].joints)))
    return path


def film(contract: Contract, root: Path, *, jitter: bool, outcomes: bool = True) -> Dataset:
    """Every way for an episode to end, some with interventions, with rewards on the way, and with nothing to say."""
    rng, robot = np.random.default_rng(3), contract.robot
    t = np.arange(LENGTH)
    told: list[dict[str, Any]] = [
        {"success": True, "terminated": True, "truncated": False, "reward": (t == LENGTH - 1)},
        {"success": False, "terminated": False, "truncated": True, "reward": 0 * t},
        {"success": False, "terminated": True, "truncated": False, "reward": 0.1 * t - 1, "intervention": t % 7 < 3},
        {"success": True, "terminated": False, "truncated": True, "reward": 0 * t, "intervention": t == LENGTH - 1},
    ]
    with EpisodeWriter(root, contract.interface, stamps=("proprio", "action", "gripper"), outcomes=outcomes) as writer:
        for e, facts in enumerate(told):
            q = np.array(robot.home) + 0.01 * np.cumsum(rng.uniform(-1, 1, (LENGTH, len(robot.home))), axis=0)
            action = make_control("joint_position", robot).actions(q, q + 0.01, np.full(LENGTH, 0.04))
            at = 100.0 + 10 * e + 0.05 * t + (rng.uniform(0, 2e-3, LENGTH) if jitter else 0.0)
            facts = facts if outcomes else facts | {"success": False}
            writer.write(
                Episode(
                    {"proprio": proprio(q, np.full(LENGTH, 0.04), *robot.chain.forward(q))} | felt(contract, rng),
                    action.astype(np.float32), task=f"task {e}", stamps=dict.fromkeys(("proprio", "action"), at)
                    | {"gripper": np.full(LENGTH, at[0])}, **facts | {"reward": facts["reward"].astype(np.float32)},
                )
            )  # fmt: skip
    return Dataset.open(root)


def felt(contract: Contract, rng: np.random.Generator) -> dict[str, np.ndarray]:
    if contract.contact is None:
        return {}
    feature = contract.contact.feature
    size = contract.interface.observation[feature].size
    return {feature: rng.normal(size=(LENGTH, size)).astype(np.float32)}


def same(a: Dataset, b: Dataset) -> None:
    assert a.lengths.tolist() == b.lengths.tolist() and a.tasks == b.tasks and a.outcomes == b.outcomes
    for name in ("success", "terminated", "truncated", "intervention", "reward", "task_index"):
        np.testing.assert_array_equal(getattr(b, name), getattr(a, name), name)
    for name in a.stamps:
        np.testing.assert_allclose(b.stamps[name], a.stamps[name], atol=2e-6, err_msg=name)
    np.testing.assert_allclose(b.observation["proprio"], a.observation["proprio"], atol=1e-5)
    np.testing.assert_allclose(b.action, a.action, atol=1e-5)


def said(path: Path) -> list[tuple[str, int, Any]]:
    """(topic, µs, content) of every message, in the order of their arrival."""
    found = []
    with AnyReader([path]) as reader:
        for connection, logged, raw in reader.messages():
            message: Any = reader.deserialize(raw, connection.msgtype)
            content = message.position if connection.msgtype == JOINT_STATE else message.data
            found.append((connection.topic, round(logged / 1e4), content))
    return found


@pytest.mark.parametrize("jitter", [True, False])
@pytest.mark.parametrize("outcomes", [True, False])
def test_both_directions_are_equal(tmp_path: Path, station: Path, jitter: bool, outcomes: bool) -> None:
    before = film(load_contract(station), tmp_path / "set", jitter=jitter, outcomes=outcomes)
    assert run("dataset", "export", tmp_path / "set", "--format", "mcap", "--robot", station, "--out",
               tmp_path / "bag") == 0  # fmt: skip
    assert run("dataset", "import", tmp_path / "bag", "--robot", station, "--out", tmp_path / "back") == 0
    after = Dataset.open(tmp_path / "back")
    same(before, after)
    assert run("dataset", "export", tmp_path / "back", "--format", "mcap", "--robot", station, "--out",
               tmp_path / "bag2") == 0  # fmt: skip
    first, second = said(tmp_path / "bag"), said(tmp_path / "bag2")
    assert len(first) == len(second) > 4 * LENGTH
    for (topic, at, content), (topic2, at2, content2) in zip(first, second, strict=True):
        assert (topic, at) == (topic2, at2)
        if topic != EPISODE_EVENTS:
            np.testing.assert_allclose(content2, content, atol=1e-5)
            continue
        told, again = json.loads(content), json.loads(content2)
        np.testing.assert_allclose(again.pop("frames_ns", []), told.pop("frames_ns", []), atol=1000)
        assert again == told


@pytest.mark.parametrize(("source", "got"), [("proprio", "go back by 0.2 s"), (FRAME, "two frames at one time")])
def test_stamps_that_do_not_rise_make_no_bag(
    tmp_path: Path, station: Path, capsys: pytest.CaptureFixture, source: str, got: str
) -> None:
    data = film(load_contract(station), tmp_path / "data", jitter=False)
    whole = [data.episode(index) for index in range(data.episodes)]
    stamps = {name: np.array(at) for name, at in whole[1].stamps.items()}
    stamps.setdefault(FRAME, stamps["proprio"].copy())
    stamps[source][7] = stamps[source][6] - (0.2 if source == "proprio" else 0.0)
    with EpisodeWriter(tmp_path / "back", data.interface, stamps=tuple(stamps)) as writer:
        writer.write(replace(whole[1], stamps=stamps))
    bag = tmp_path / "back.mcap"
    assert run("dataset", "export", tmp_path / "back", "--format", "mcap", "--robot", station, "--out", bag) == 2
    error = capsys.readouterr().err
    assert "frame 7" in error and got in error and "edit drop" in error and not bag.exists()


def test_stamps_that_two_clocks_put_back_a_little_come_back_in_order(
    tmp_path: Path, station: Path, caplog: pytest.LogCaptureFixture
) -> None:
    data = film(load_contract(station), tmp_path / "data", jitter=False)
    whole = data.episode(1)
    stamps = {name: np.array(at) for name, at in whole.stamps.items()}
    stamps["proprio"][7] = stamps["proprio"][6] - 0.0005
    with EpisodeWriter(tmp_path / "set", data.interface, stamps=tuple(stamps)) as writer:
        writer.write(replace(whole, stamps=stamps))
    assert not [f for f in validate(tmp_path / "set") if "back" in str(f)]
    bag, back = tmp_path / "set.mcap", tmp_path / "back"
    assert run("dataset", "export", tmp_path / "set", "--format", "mcap", "--robot", station, "--out", bag) == 0
    assert "proprio moved by up to 0.5 ms" in caplog.text
    assert run("dataset", "import", bag, "--robot", station, "--out", back) == 0
    again = Dataset.open(back).episode(0)
    np.testing.assert_allclose(again.observation["proprio"], whole.observation["proprio"], atol=1e-5)
    np.testing.assert_allclose(again.stamps["proprio"], stamps["proprio"], atol=5.1e-4)


@pytest.mark.parametrize("feature", FELT)
def test_what_the_arm_felt_comes_back(tmp_path: Path, station: Path, feature: str) -> None:
    station.write_text(station.read_text() + FELT[feature])
    before = film(load_contract(station), tmp_path / "set", jitter=False)
    assert run("dataset", "export", tmp_path / "set", "--format", "mcap", "--robot", station, "--out",
               tmp_path / "bag") == 0  # fmt: skip
    assert run("dataset", "import", tmp_path / "bag", "--robot", station, "--out", tmp_path / "back") == 0
    after = Dataset.open(tmp_path / "back")
    same(before, after)
    assert np.abs(before.observation[feature]).max() > 1.0
    np.testing.assert_allclose(after.observation[feature], before.observation[feature], atol=1e-6)


def test_one_vector_of_arm_and_gripper_goes_both_ways(tmp_path: Path, station: Path) -> None:
    text = station.read_text()
    old = "gripper: {joints: [finger], topic: /hand/command, type: std_msgs/msg/Float64MultiArray, unit: opening}"
    assert text.count(old) == 1
    station.write_text(text.replace(old, "gripper: {joints: [finger], in_command: true}"))
    contract = load_contract(station)
    before = film(contract, tmp_path / "set", jitter=False)
    assert run("dataset", "export", tmp_path / "set", "--format", "mcap", "--robot", station, "--out",
               tmp_path / "bag") == 0  # fmt: skip
    commands = [content for topic, _, content in said(tmp_path / "bag") if topic == contract.command.topic]
    assert {len(command) for command in commands} == {8}
    assert commands[0][-1] == pytest.approx(contract.gripper_joint_positions(0.04)[0], abs=1e-6)
    assert run("dataset", "import", tmp_path / "bag", "--robot", station, "--out", tmp_path / "back") == 0
    after = Dataset.open(tmp_path / "back")
    np.testing.assert_allclose(after.action, before.action, atol=1e-5)
    np.testing.assert_allclose(after.observation["proprio"], before.observation["proprio"], atol=1e-5)


def test_bags_know_no_raw_torques(tmp_path: Path, station: Path, capsys: pytest.CaptureFixture) -> None:
    plain = station.read_text()
    station.write_text(plain + FELT["external_torque"])
    film(load_contract(station), tmp_path / "set", jitter=False)
    raw = f"contact: {{topic: /joint_states, type: sensor_msgs/msg/JointState, gravity: true, max_torque: {[5.0] * 7}}}"
    station.write_text(f"{plain}{raw}\n")
    code = run("dataset", "export", tmp_path / "set", "--format", "mcap", "--robot", station, "--out", tmp_path / "bag")
    assert code == 2 and "contact.gravity" in capsys.readouterr().err


def test_the_words_of_a_user_go_before_those_of_the_bag(tmp_path: Path, station: Path) -> None:
    film(load_contract(station), tmp_path / "set", jitter=False, outcomes=False)
    export = ("dataset", "export", tmp_path / "set", "--format", "mcap", "--robot", station)
    assert run(*export, "--out", tmp_path / "bag") == 0
    flags = ("--robot", station, "--task", "wave", "--outcome", "success")
    assert run("dataset", "import", tmp_path / "bag", *flags, "--out", tmp_path / "back") == 0
    dataset = Dataset.open(tmp_path / "back")
    assert dataset.tasks == ["wave"] and dataset.outcomes and dataset.success.all()


def test_a_folder_is_no_file(tmp_path: Path, station: Path, capsys: pytest.CaptureFixture) -> None:
    film(load_contract(station), tmp_path / "set", jitter=False)
    (tmp_path / "demos.mcap").mkdir()
    export = ("dataset", "export", tmp_path / "set", "--format", "mcap", "--robot", station)
    assert run(*export, "--out", tmp_path / "demos.mcap") == 2
    assert "got a folder, expected a file" in capsys.readouterr().err


def test_what_is_left_out_is_said(tmp_path: Path, station: Path, capsys: pytest.CaptureFixture) -> None:
    film(load_contract(station), tmp_path / "set", jitter=False)
    export = ("dataset", "export", tmp_path / "set", "--format", "mcap", "--robot", station)
    assert run(*export, "--out", tmp_path / "bag") == 0
    make = Messages()
    with AnyReader([tmp_path / "bag"]) as reader, Writer(
        tmp_path / "more", version=8, storage_plugin=StoragePlugin.MCAP
    ) as bag:  # fmt: skip
        to = {c.topic: bag.add_connection(c.topic, c.msgtype, typestore=make.store) for c in reader.connections}
        to["/diary"] = bag.add_connection("/diary", STRING, typestore=make.store)
        for connection, logged, raw in reader.messages():
            content = raw
            if connection.topic == "/joint_states":
                message: Any = reader.deserialize(raw, connection.msgtype)
                message.velocity = np.zeros(len(message.name))
                content = bytes(make.store.serialize_cdr(message, JOINT_STATE))
                bag.write(to["/diary"], logged, bytes(make.store.serialize_cdr(make.text("on"), STRING)))
            bag.write(to[connection.topic], logged, content)
    capsys.readouterr()
    assert run("dataset", "import", tmp_path / "bag", "--robot", station, "--out", tmp_path / "a", "--json") == 0
    assert json.loads(capsys.readouterr().out)["left_out"] == []
    assert run("dataset", "import", tmp_path / "more", "--robot", station, "--out", tmp_path / "b", "--json") == 0
    left_out = json.loads(capsys.readouterr().out)["left_out"]
    assert left_out == ["/diary (std_msgs/msg/String)", "of /joint_states: velocity"]


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"terminated": 1}, "terminated: got 1, expected true or false"),
        ({"interventions": [3, 2]}, "interventions: got numbers that do not rise"),
        ({"interventions": "all"}, "interventions: got 'all', expected numbers of frames"),
        ({"rewards": [3]}, r"rewards: got \[3\], expected \[frame, reward\] each"),
        ({"rewards": [[-1, 0.5]]}, r"rewards: got \[-1\], expected numbers of frames"),
        ({"frames_ns": [5, 5]}, "frames_ns: got numbers that do not rise, expected nanoseconds since the start"),
    ],
)
def test_a_malformed_ending_is_refused(wrong: dict[str, Any], message: str) -> None:
    with pytest.raises(BadInput, match=message):
        ending_of({"event": "success", **wrong}, "bag x")


def test_an_ending_that_says_nothing_more_is_the_usual_one() -> None:
    assert ending_of({"event": "failure"}, "bag x") == Ending()
    assert ending_of(json.loads(json.dumps(Ending((0, 5), False, True, (1,), ((0, 0.5),), False).to_json())), "x") == (
        Ending((0, 5), False, True, (1,), ((0, 0.5),), False)
    )
