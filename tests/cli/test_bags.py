"""Bags at realistic, irregular rates: into a data set and back, and every fault refused with its place."""

from __future__ import annotations

import json
import re
import shutil
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from rosbags.highlevel import AnyReader
from rosbags.typesys import Stores, get_typestore

sys.path.insert(0, str(Path(__file__).parent))
from bag_recorder import SIZE, STATES, T0, Recorder, heard, original, write_contract

from robolearn.cli.main import main
from robolearn.data import Dataset
from robolearn.data.convert.bags import EPISODE_EVENTS
from robots import make_control
from robots.stations import FLOATS, STRING, TRAJECTORY, load_contract

Record = Callable[..., tuple[Path, Path]]


@pytest.fixture
def record(tmp_path: Path) -> Record:
    """(bag, contract): three episodes, one of them discarded, and one that never ended."""

    def make(change: Callable[[Recorder], None] = lambda recorder: None, **contract: str) -> tuple[Path, Path]:
        path = write_contract(tmp_path, **contract)
        station = load_contract(path)
        recorder = Recorder(station)
        q = recorder.move(0.5, np.array(station.robot.home))
        q = recorder.episode(1.2, q, "success", "lift the cube")
        q = recorder.episode(0.6, q, "discard")
        q = recorder.episode(0.9, q, "failure")
        recorder.event("start")
        recorder.move(0.3, q)
        change(recorder)
        return recorder.write(tmp_path / "bag"), path

    return make


def run(*args: Any) -> int:
    return main([str(arg) for arg in args])


@pytest.mark.long
@pytest.mark.parametrize(
    ("kind", "command"),
    [("tcp_delta", FLOATS), ("joint_position", TRAJECTORY), ("tcp_delta", "geometry_msgs/msg/PoseStamped")],
)
def test_bag_to_set_to_bag(record: Record, tmp_path: Path, kind: str, command: str) -> None:
    bag, contract = record(kind=kind, command=command)
    assert run("dataset", "import", bag, "--format", "mcap", "--robot", contract, "--out", tmp_path / "set") == 0
    assert run("dataset", "export", tmp_path / "set", "--format", "mcap", "--robot", contract, "--out",
               tmp_path / "back.mcap") == 0  # fmt: skip
    before, after = heard(bag), heard(tmp_path / "back.mcap")
    assert set(after) == set(before)
    counts = {topic: len(messages) for topic, messages in after.items()}
    assert counts[EPISODE_EVENTS] == 4 and counts["/joint_states"] == counts["/arm/command"] == 24 + 18
    assert 20 < counts["/wrist/compressed"] < counts["/front/image"] <= 42 and 4 <= counts["/hand/command"] <= 8
    tolerance = 1e-3 if command.endswith("PoseStamped") else 2e-4
    for topic, messages in after.items():
        for at, message in messages.items():
            source = original(at, before[topic])
            assert source is not None, f"{topic} at {at} was never said"
            if topic == "/joint_states":
                wanted = dict(zip(source.name, source.position, strict=True))
                assert [wanted[name] for name in message.name] == pytest.approx(message.position.tolist(), abs=1e-6)
            elif topic == "/arm/command" and command == FLOATS:
                assert message.data.tolist() == pytest.approx(source.data.tolist(), abs=tolerance)
            elif topic == "/arm/command" and command == TRAJECTORY:
                assert message.joint_names == source.joint_names
                assert message.points[0].positions.tolist() == pytest.approx(
                    source.points[0].positions.tolist(), abs=tolerance
                )
            elif topic == "/arm/command":
                for part, names in (("position", "xyz"), ("orientation", "wxyz")):
                    got, want = getattr(message.pose, part), getattr(source.pose, part)
                    assert [getattr(got, n) for n in names] == pytest.approx(
                        [getattr(want, n) for n in names], abs=tolerance
                    )
            elif topic == "/hand/command":
                assert message.data.tolist() == pytest.approx(source.data.tolist(), abs=1e-6)
            elif topic == "/front/image":
                difference = np.abs(message.data.astype(int) - source.data.astype(int))
                assert message.encoding == "rgb8" and difference.mean() < 6
            elif topic == EPISODE_EVENTS:
                assert json.loads(message.data)["event"] == json.loads(source.data)["event"]

    # And the same data set again.
    assert run("dataset", "import", tmp_path / "back.mcap", "--robot", contract, "--out", tmp_path / "again") == 0
    first, second = Dataset.open(tmp_path / "set"), Dataset.open(tmp_path / "again")
    assert first.lengths.tolist() == second.lengths.tolist() == [24, 18]
    assert first.success.tolist() == second.success.tolist() == [True, False]
    assert first.tasks == second.tasks == ["lift the cube", ""]
    assert np.abs(first.observation["proprio"] - second.observation["proprio"]).max() < 1e-5
    assert np.abs(first.action - second.action).max() < 1e-3
    for name, stamps in first.stamps.items():
        assert np.abs(stamps - second.stamps[name]).max() < 2e-6, name


@pytest.mark.long
def test_a_gripper_that_is_measured_on_a_topic_of_its_own(record: Record, tmp_path: Path) -> None:
    """As franka_ros2 has it; its bags were refused."""
    bag, contract = record(states=STATES)
    assert run("dataset", "import", bag, "--robot", contract, "--out", tmp_path / "set") == 0
    first, said = Dataset.open(tmp_path / "set", cache=False), heard(bag)["/hand/joint_states"]
    station = load_contract(contract)
    stamps = np.array(sorted(said))
    for at, row in zip(first.stamps["frame"], first.observation["proprio"], strict=True):
        newest = said[stamps[np.searchsorted(stamps, 1e6 * at, side="right") - 1]]
        width = station.gripper_width([newest.position[0]])
        assert row[len(station.joints)] == pytest.approx(width, abs=1e-6)
    assert np.ptp(first.observation["proprio"][:, len(station.joints)]) > 0.005

    assert run("dataset", "export", tmp_path / "set", "--format", "mcap", "--robot", contract, "--out",
               tmp_path / "back.mcap") == 0  # fmt: skip
    back = heard(tmp_path / "back.mcap")
    assert all(message.name == ["finger"] for message in back["/hand/joint_states"].values())
    assert all("finger" not in message.name for message in back["/joint_states"].values())
    assert run("dataset", "import", tmp_path / "back.mcap", "--robot", contract, "--out", tmp_path / "again") == 0
    second = Dataset.open(tmp_path / "again")
    assert np.abs(first.observation["proprio"] - second.observation["proprio"]).max() < 1e-5
    assert np.abs(first.action - second.action).max() < 1e-3


def test_a_gripper_that_falls_silent_is_refused(record: Record, tmp_path: Path, capsys) -> None:
    def silent(recorder: Recorder) -> None:
        half = T0 + 1_000_000_000
        recorder.said = [one for one in recorder.said if one[1] != "/hand/joint_states" or one[0] < half]

    bag, contract = record(silent, states=STATES)
    assert run("dataset", "import", bag, "--robot", contract, "--out", tmp_path / "set") == 2
    assert "/hand/joint_states: episode 0" in capsys.readouterr().err


@pytest.mark.long
def test_frames_hold_the_newest_message_before_them(record: Record, tmp_path: Path) -> None:
    bag, contract = record()
    assert run("dataset", "import", bag, "--robot", contract, "--out", tmp_path / "set", "--json") == 0
    dataset, said = Dataset.open(tmp_path / "set", cache=False), heard(bag)
    at = dataset.stamps["frame"]
    assert np.diff(at[:24]) == pytest.approx(0.05, abs=1e-6)
    for name, topic in (("proprio", "/joint_states"), ("images.wrist", "/wrist/compressed")):
        stamps = 1e-6 * np.array(sorted(said[topic]))
        expected = stamps[np.searchsorted(stamps, at, side="right") - 1]
        assert np.abs(dataset.stamps[name] - expected).max() < 2e-6
    # The action is what was commanded in the step that begins with its frame.
    assert (dataset.stamps["action"] > at).all() and (dataset.stamps["action"] < at + 0.05).all()
    front = dataset.images("front")
    message = original(round(1e6 * dataset.stamps["images.front"][5]), said["/front/image"])
    assert np.abs(front[5].astype(int) - message.data.reshape(*SIZE, 3).astype(int)).mean() < 6


@pytest.mark.long
def test_a_bag_without_events_is_one_episode(record: Record, tmp_path: Path, capsys: pytest.CaptureFixture) -> None:
    def silent(recorder: Recorder) -> None:
        recorder.said = [said for said in recorder.said if said[1] != EPISODE_EVENTS]

    bag, contract = record(silent)
    args = ("dataset", "import", next(bag.glob("*.mcap")), "--robot", contract, "--no-images", "--json")
    assert run(*args, "--out", tmp_path / "a") == 0
    result = json.loads(capsys.readouterr().out)
    assert result["episodes"] == 1 and result["successes"] == 0 and "does not say" in result["left_out"][-1]
    assert run(*args, "--out", tmp_path / "b", "--outcome", "success", "--task", "wave") == 0
    dataset = Dataset.open(tmp_path / "b")
    assert dataset.success.tolist() == [True] and dataset.tasks == ["wave"] and 80 <= dataset.frames <= 102


def _drop(topic: str) -> Callable[[Recorder], None]:
    def change(recorder: Recorder) -> None:
        recorder.said = [said for said in recorder.said if said[1] != topic]

    return change


def _gap(topic: str, begin: float, end: float) -> Callable[[Recorder], None]:
    def change(recorder: Recorder) -> None:
        recorder.said = [s for s in recorder.said if s[1] != topic or not begin < 1e-9 * (s[0] - T0) < end]

    return change


def _retype(recorder: Recorder) -> None:
    recorder.said = [
        (at, topic, STRING, recorder.make.text("?")) if topic == "/arm/command" else (at, topic, kind, message)
        for at, topic, kind, message in recorder.said
    ]


def _nan(recorder: Recorder) -> None:
    message = next(said[3] for said in recorder.said if said[1] == "/joint_states" and said[0] > T0 + 9e8)
    message.position[:] = np.nan


def _nameless(recorder: Recorder) -> None:
    message = next(said[3] for said in recorder.said if said[1] == "/joint_states" and said[0] > T0 + 9e8)
    message.name[message.name.index("left_panda_joint3")] = "stranger"


def _other_clock(recorder: Recorder) -> None:
    for _, topic, _, message in recorder.said:
        if topic == "/front/image":
            message.header.stamp.sec -= 3600


def _words(recorder: Recorder) -> None:
    recorder.said.append((T0 + 10**8, EPISODE_EVENTS, STRING, recorder.make.text("begin!")))


def _end_first(recorder: Recorder) -> None:
    recorder.said.append((T0 + 10**8, EPISODE_EVENTS, STRING, recorder.make.text('{"event": "success"}')))


def _bad_picture(recorder: Recorder) -> None:
    for _, topic, _, message in recorder.said:
        if topic == "/wrist/compressed":
            message.data = message.data[:10]


@pytest.mark.long
@pytest.mark.parametrize(
    ("change", "words"),
    [
        (_drop("/arm/command"), ["topic /arm/command (command of contract station)", "missing", "Float64MultiArray"]),
        (_drop("/wrist/compressed"), ["topic /wrist/compressed (images.wrist", "available: /arm/command"]),
        (_retype, ["topic /arm/command", "got std_msgs/msg/String", "expected std_msgs/msg/Float64MultiArray"]),
        (_gap("/joint_states", 1.0, 1.3), ["/joint_states: episode 0, frame ", "1.0", "a gap of 0.", "0.06 s"]),
        (_gap("/front/image", 3.0, 9.0), ["/front/image: episode 1, frame", "no more messages", "0.2 s"]),
        (_gap("/arm/command", 0.8, 1.2), ["/arm/command: episode 0, frame", "a gap of 0.4"]),
        (_nan, ["/joint_states, message", "NaN or infinity"]),
        (_nameless, ["/joint_states, message", "no 'left_panda_joint3'"]),
        (_other_clock, ["/front/image", "stamps 3600", "one clock"]),
        (_words, [EPISODE_EVENTS, "begin!", '{"event": "start"}']),
        (_end_first, [EPISODE_EVENTS, "0.09", "never began"]),
        (_bad_picture, ["/wrist/compressed at", "no picture"]),
    ],
)
def test_faults_are_refused_with_their_place(
    record: Record, tmp_path: Path, capsys: pytest.CaptureFixture, change: Callable[[Recorder], None], words: list[str]
) -> None:
    bag, contract = record(change)
    assert run("dataset", "import", bag, "--robot", contract, "--out", tmp_path / "set", "--json") == 2
    said = capsys.readouterr().err.strip().splitlines()[-1]
    assert str(bag) in said
    for word in words:
        assert word in said, said
    assert not (tmp_path / "set").exists()


@pytest.mark.long
@pytest.mark.parametrize("keep", [0.0, 0.4, 0.95])
def test_a_truncated_file(record: Record, tmp_path: Path, capsys: pytest.CaptureFixture, keep: float) -> None:
    bag, contract = record()
    file = next(bag.glob("*.mcap"))
    file.write_bytes(file.read_bytes()[: int(keep * file.stat().st_size)])
    assert run("dataset", "import", bag, "--robot", contract, "--out", tmp_path / "set") == 2
    said = capsys.readouterr().err
    assert "cannot be read" in said and str(bag) in said and "mcap recover" in said


@pytest.mark.long
def test_what_is_asked_for_wrongly(record: Record, tmp_path: Path, capsys: pytest.CaptureFixture) -> None:
    bag, contract = record()
    (tmp_path / "empty").mkdir()
    assert run("dataset", "import", tmp_path / "empty", "--format", "mcap", "--robot", contract, "--out",
               tmp_path / "set") == 2  # fmt: skip
    assert "without metadata.yaml" in capsys.readouterr().err
    assert run("dataset", "import", bag, "--out", tmp_path / "set") == 2
    assert "--robot" in capsys.readouterr().err
    assert run("dataset", "import", bag, "--robot", contract, "--no-images", "--out", tmp_path / "set") == 0
    assert run("dataset", "export", tmp_path / "set", "--format", "mcap", "--robot", "ur5e", "--out",
               tmp_path / "out.mcap") == 2  # fmt: skip
    assert "made for ur5e, this is panda" in capsys.readouterr().err and not (tmp_path / "out.mcap").exists()


@pytest.mark.long
def test_a_set_without_stamps_gets_those_of_its_frames(
    demos: Path, tmp_path: Path, capsys: pytest.CaptureFixture
) -> None:
    args = ("--format", "mcap", "--robot", "sim", "--out", tmp_path / "bag")
    assert run("dataset", "export", demos, *args) == 0
    assert run("dataset", "import", tmp_path / "bag", "--robot", "sim", "--out", tmp_path / "set") == 2
    assert "--no-images leaves the cameras out" in capsys.readouterr().err
    assert run("dataset", "import", tmp_path / "bag", "--robot", "sim", "--no-images", "--out",
               tmp_path / "set") == 0  # fmt: skip
    first, second = Dataset.open(demos), Dataset.open(tmp_path / "set")
    assert first.lengths.tolist() == second.lengths.tolist()
    assert first.success.tolist() == second.success.tolist()
    for key, values in first.observation.items():
        assert np.abs(values - second.observation[key]).max() < 1e-4
    # Actions of the expert that the limits of the joints cut short lead to the same place.
    assert np.quantile(np.abs(first.action - second.action).max(axis=1), 0.95) < 1e-2


def test_a_live_recording_keeps_its_stamps(tmp_path: Path) -> None:
    """A set whose frames jitter as those of `robolearn record` do, and which has no stamp of the frame itself."""
    from robolearn.core import Episode
    from robolearn.data import EpisodeWriter
    from robots.spec import proprio

    path = write_contract(tmp_path, kind="joint_position")
    contract = load_contract(path).with_cameras(())
    rng, robot = np.random.default_rng(2), contract.robot
    with EpisodeWriter(tmp_path / "set", contract.interface, stamps=("proprio", "action", "device")) as writer:
        for e in range(2):
            q = np.array(robot.home) + 0.01 * np.cumsum(rng.uniform(-1, 1, (30, len(robot.home))), axis=0)
            goal = q + 0.01
            action = make_control("joint_position", robot).actions(q, goal, np.full(30, 0.04)).astype(np.float32)
            at = 1e-9 * T0 + 10 * e + 0.05 * np.arange(30) + rng.uniform(0, 2e-3, 30)
            stamps = {"proprio": at - rng.uniform(0, 5e-3, 30), "action": at + 1e-3, "device": at - 0.1}
            writer.write(
                Episode(
                    {"proprio": proprio(q, np.full(30, 0.04), *robot.chain.forward(q))},
                    action, np.zeros(30, np.float32), bool(e), True, False, "wave", stamps=stamps,
                )
            )  # fmt: skip
    assert (
        run("dataset", "export", tmp_path / "set", "--format", "mcap", "--robot", path, "--out", tmp_path / "bag") == 0
    )
    assert run("dataset", "import", tmp_path / "bag", "--robot", path, "--no-images", "--out", tmp_path / "again") == 0
    first, second = Dataset.open(tmp_path / "set"), Dataset.open(tmp_path / "again")
    assert second.lengths.tolist() == [30, 30] and second.success.tolist() == [False, True]
    for name in ("proprio", "action"):
        assert np.abs(first.stamps[name] - second.stamps[name]).max() < 2e-6
    assert np.abs(first.action - second.action).max() < 1e-5
    assert np.abs(first.observation["proprio"] - second.observation["proprio"]).max() < 1e-5


def with_strangers(bag: Path) -> None:
    """Beside the topics of the station: one of JSON, one of protobuf, one whose definition nothing can parse."""
    from rosbags.rosbag2 import StoragePlugin, Writer

    said = [(one.topic, one.msgtype, at, raw) for one, at, raw in everything(bag)]
    shutil.rmtree(bag)
    store = get_typestore(Stores.LATEST)
    with Writer(bag, version=8, storage_plugin=StoragePlugin.MCAP) as written:
        channels: dict[str, Any] = {}
        for topic, kind, at, raw in said:
            if topic not in channels:
                channels[topic] = written.add_connection(topic, kind, typestore=store)
            written.write(channels[topic], at, raw)
        for name, text in (("Json", "int32 x"), ("Proto", "int32 y"), ("Odd", "int32 z")):
            kind = f"strange/msg/{name}"
            odd = written.add_connection(f"/{name.lower()}", kind, msgdef=text, rihs01="RIHS01_" + "0" * 64)
            written.write(odd, said[-1][2], b"\0\1\0\0abcd")
    file = next(bag.glob("*.mcap"))
    content = file.read_bytes()
    for before, after in (
        (b"strange/msg/Json\x07\0\0\0ros2msg", b"strange/msg/Json\x07\0\0\0jsonsch"),
        (b"int32 y", b"\x0a\xff\xfe\x80\x81\x82\x83"),
        (b"int32 z", b"(((]]]["),
    ):
        assert before in content
        content = content.replace(before, after)
    file.write_bytes(content)


def everything(bag: Path) -> list[Any]:
    with AnyReader([bag]) as reader:
        return list(reader.messages())


@pytest.mark.long
def test_channels_that_cannot_be_read_are_left_out_and_named(
    record: Record, tmp_path: Path, capsys: pytest.CaptureFixture
) -> None:
    bag, contract = record()
    assert run("dataset", "import", bag, "--robot", contract, "--out", tmp_path / "plain", "--json") == 0
    plain = json.loads(capsys.readouterr().out)
    with_strangers(bag)
    with pytest.raises(Exception):  # noqa: B017 — the library refuses the whole file
        everything(bag)
    assert run("dataset", "import", bag, "--robot", contract, "--out", tmp_path / "set", "--json") == 0
    said = json.loads(capsys.readouterr().out)
    assert said["read"] == plain["read"] and said["frames"] == plain["frames"]
    named = [line for line in said["left_out"] if line not in plain["left_out"]]
    assert [line.split(":")[0] for line in named] == ["/json", "/odd", "/proto"], named
    (front,) = (line for line in said["read"] if line.startswith("/front/image → images.front ("))
    p50, p99, most = map(int, re.findall(r"(\d+) ms", front))
    assert 5 < p50 < p99 <= most < 80, "a camera of 30 Hz, looked at when a frame begins"


@pytest.mark.long
def test_a_clock_that_steps_back_is_refused_where_it_does(
    record: Record, tmp_path: Path, capsys: pytest.CaptureFixture
) -> None:
    def step(recorder: Recorder) -> None:
        """The camera's clock is set back by 0.55 s in the middle of the first episode."""
        for at, topic, _, message in recorder.said:
            if topic == "/front/image" and at > T0 + 1.2e9:
                ns = message.header.stamp.sec * 10**9 + message.header.stamp.nanosec - 550_000_000
                message.header.stamp.sec, message.header.stamp.nanosec = divmod(ns, 10**9)

    bag, contract = record(step)
    assert run("dataset", "import", bag, "--robot", contract, "--out", tmp_path / "set") == 2
    said = capsys.readouterr().err
    assert "/front/image: episode 0: got a clock that steps back by 0.5" in said and "--skip-bad" in said
    words = ["--robot", contract, "--out", tmp_path / "set", "--skip-bad", "--json"]
    code = run("dataset", "import", bag, *words)
    assert code == 0, capsys.readouterr().err
    said = json.loads(capsys.readouterr().out)
    assert said["episodes"] == 1 and any("episode 0: got a clock that steps back" in one for one in said["left_out"])


@pytest.mark.long
@pytest.mark.parametrize("words", [("--action-kind", "tcp_delta"), ("--embodiment", "so101"), ("--hz", "10")])
def test_what_the_contract_says_is_not_said_again(
    record: Record, tmp_path: Path, capsys: pytest.CaptureFixture, words: tuple[str, str]
) -> None:
    bag, contract = record()
    assert run("dataset", "import", bag, "--robot", contract, *words, "--out", tmp_path / "set") == 2
    assert f"{words[0]} with mcap: got {words[1]}" in capsys.readouterr().err
