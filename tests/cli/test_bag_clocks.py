"""Bags whose recorder's clock stepped back, and recordings of which a part cannot be used: named, not silent."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from rosbags.rosbag2 import StoragePlugin, Writer

sys.path.insert(0, str(Path(__file__).parent))
from bag_recorder import T0, Recorder, write_contract

from robolearn.cli.main import main
from robolearn.data.convert.bags.arrival import doubled, recorded_twice
from robots.stations import load_contract

BACK = 400_000_000  # [ns]


@pytest.fixture
def recorder(tmp_path: Path) -> Recorder:
    recorder = Recorder(load_contract(write_contract(tmp_path)))
    recorder.move(2.5, np.array(recorder.contract.robot.home))
    recorder.said.sort(key=lambda said: said[0])
    return recorder


def write(recorder: Recorder, path: Path, plugin: StoragePlugin) -> Path:
    """The bag of all that was said, in the order in which it stands there."""
    with Writer(path, version=8, storage_plugin=plugin) as bag:
        connections: dict[str, Any] = {}
        for at, topic, kind, message in recorder.said:
            if topic not in connections:
                connections[topic] = bag.add_connection(topic, kind, typestore=recorder.make.store)
            bag.write(connections[topic], at, bytes(recorder.make.store.serialize_cdr(message, kind)))
    return path


def imported(bag: Path, capsys: pytest.CaptureFixture[str]) -> tuple[int, str]:
    words = ["dataset", "import", bag, "--robot", bag.parent / "station.yaml", "--out", bag.parent / "set", "--json"]
    code = main([str(word) for word in words])
    said = capsys.readouterr()
    return code, said.out if code == 0 else said.err


@pytest.mark.long
@pytest.mark.parametrize("plugin", [StoragePlugin.MCAP, StoragePlugin.SQLITE3])
def test_a_recorder_whose_clock_is_set_back(
    recorder: Recorder, plugin: StoragePlugin, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The machine's clock, of headers and of the recording alike: sorted by it, messages of two moments lie mixed."""
    recorder.move(2.5, np.array(recorder.contract.robot.home))
    recorder.said.sort(key=lambda said: said[0])
    for number, (at, topic, kind, message) in enumerate(recorder.said):
        if at > T0 + 4.5e9:  # in the second chunk of the file
            recorder.said[number] = (at - BACK, topic, kind, message)
            if (header := getattr(message, "header", None)) is not None:
                ns = header.stamp.sec * 10**9 + header.stamp.nanosec - BACK
                header.stamp.sec, header.stamp.nanosec = divmod(ns, 10**9)
    code, said = imported(write(recorder, tmp_path / "bag", plugin), capsys)
    assert code == 2
    assert "time of recording: episode 0: got a clock that steps back by 0.39" in said, said


@pytest.mark.long
def test_topics_that_lie_one_after_the_other(
    recorder: Recorder, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A file that another program sorted by topic, and within a topic by halves, is the recording that it was."""
    code, plain = imported(write(recorder, tmp_path / "plain", StoragePlugin.MCAP), capsys)
    assert code == 0, plain
    (tmp_path / "set").rename(tmp_path / "set_of_plain")
    recorder.said.sort(key=lambda said: (said[1], said[0] < T0 + 1.2e9, said[0]))
    code, said = imported(write(recorder, tmp_path / "sorted", StoragePlugin.MCAP), capsys)
    assert code == 0, said
    assert json.loads(said)["read"] == json.loads(plain)["read"]


@pytest.mark.long
@pytest.mark.parametrize("topic", ["/front/image", "/arm/command"])
def test_the_parts_of_a_bag_that_have_not_every_topic(
    recorder: Recorder, topic: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    recorder.said = [said for said in recorder.said if said[1] != topic or T0 + 0.8e9 < said[0] < T0 + 1.9e9]
    code, said = imported(write(recorder, tmp_path / "bag", StoragePlugin.MCAP), capsys)
    assert code == 0, said
    parts = [line for line in json.loads(said)["left_out"] if " s of the bag" in line]
    first, last = parts
    assert first.startswith(("the first 0.7", "the first 0.8")) and f"the first message of {topic}" in first, parts
    assert last.startswith(("the last 0.5", "the last 0.6")) and f"the last message of {topic}" in last, parts


@pytest.mark.long
def test_the_index_of_a_bag_is_read_once_and_only_where_its_messages_can_be_used(
    recorder: Recorder, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """On a large bag that is work: an entry for each message."""
    reads: list[str] = []

    def counted(reader: Any) -> Any:
        reads.append(str(reader.path))
        return recorded_twice(reader)

    monkeypatch.setattr("robolearn.data.convert.bags.recording.recorded_twice", counted)
    code, said = imported(write(recorder, tmp_path / "whole", StoragePlugin.MCAP), capsys)
    assert code == 0 and len(reads) == 1, said
    (tmp_path / "set").rename(tmp_path / "set_of_whole")
    for _, _, _, message in recorder.said:
        if (header := getattr(message, "header", None)) is not None:
            header.stamp.sec -= 3600  # another clock's
    code, said = imported(write(recorder, tmp_path / "bag", StoragePlugin.MCAP), capsys)
    assert code == 2 and "expected one clock for all" in said
    assert len(reads) == 1


def test_stretches_that_a_clock_goes_through_twice() -> None:
    forwards = 10**7 * np.arange(100)
    assert doubled(forwards) == []
    assert doubled(np.concatenate([forwards[50:], forwards[:50]])) == []
    assert doubled(np.array([0, 300_000_000, 290_000_000, 500_000_000])) == []
    assert doubled(np.concatenate([forwards, forwards[60:] + 5])) == [(600_000_005, 990_000_000)]
