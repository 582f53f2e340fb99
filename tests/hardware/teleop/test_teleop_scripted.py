"""The script in the operator's place, and logs of what devices said."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from hardware.teleop import Device, EpisodeEvent, Sample, Status, make_device
from hardware.teleop.recorded import Logged
from hardware.teleop.scripted import ASK_AGAIN_S, Scripted, ScriptedConfig
from robolearn.core import BadInput, Interface
from robots import PANDA

START, SUCCESS, FAILURE = EpisodeEvent.START, EpisodeEvent.SUCCESS, EpisodeEvent.FAILURE


class Counting:
    """A `Teleoperator` that says how many steps of the episode it has commanded."""

    def __init__(self) -> None:
        self.resets, self.step = 0, 0

    def reset(self, worlds: NDArray[np.bool_]) -> None:
        assert worlds.shape == (1,) and worlds.all()
        self.resets, self.step = self.resets + 1, 0

    def command(self, observation: Mapping[str, NDArray]) -> NDArray[np.float32]:
        assert observation["proprio"].shape == (1, 17)
        self.step += 1
        return np.full((1, 7), self.step / 100, dtype=np.float32)


def status(state: str) -> Status:
    return Status(state, "", 0, 2, 0, 0.0)


def test_it_runs_episodes_with_a_recording_that_shows_its_state(interface: Interface, observe, clock) -> None:
    script, solved = Counting(), [False]
    device = make_device(
        "scripted", interface, PANDA, teleoperator=script, succeeded=lambda: solved[0], max_steps=3, clock=clock
    )
    assert isinstance(device, Device)
    device.open()
    device.show(status("resetting"))
    assert device.sample(None).events == () == device.sample(observe()).events
    device.show(status("waiting"))
    sample = device.sample(observe())
    assert sample.events == (START,) and sample.action is None and sample.engaged
    assert device.sample(observe()).events == ()
    clock.now += ASK_AGAIN_S
    assert device.sample(observe()).events == (START,), "nobody heard it"
    device.show(status("recording"))
    for step in (1, 2):
        sample = device.sample(observe())
        assert sample.action is not None and sample.action.shape == (7,) and not sample.events
        assert sample.action[0] == pytest.approx(step / 100)
    solved[0] = True
    assert device.sample(observe()).events == (SUCCESS,)
    assert device.sample(observe()).events == (), "one end for one episode"
    device.show(status("waiting"))
    assert device.sample(observe()).events == (START,)
    solved[0] = False
    device.show(status("recording"))
    events = [device.sample(observe()).events for _ in range(5)]
    assert events == [(), (), (), (FAILURE,), ()] and script.resets == 2
    device.close()
    assert not device.sample(observe()).engaged


def test_it_runs_episodes_with_a_recording_that_shows_nothing(interface: Interface, observe) -> None:
    script, steps = Counting(), 0
    device = Scripted(interface, ScriptedConfig(script, lambda: script.step == 2))
    device.open()
    events = []
    for _ in range(6):
        observation = {"proprio": observe()["proprio"][None]}  # with its world axis
        sample = device.sample(observation)
        steps += sample.action is not None
        events.append(sample.events)
    assert events == [(START,), (), (SUCCESS,), (START,), (), (SUCCESS,)] and steps == 4


def test_a_redo_by_the_recording_begins_the_script_anew(interface: Interface, observe) -> None:
    script = Counting()
    device = Scripted(interface, ScriptedConfig(script, lambda: False))
    device.open()
    for state in ("recording", "resetting", "recording"):
        device.show(status(state))
        device.sample(observe())
    assert script.resets == 2 and script.step == 1


def test_a_script_is_needed(interface: Interface) -> None:
    with pytest.raises(BadInput, match="scripted: got no script"):
        make_device("scripted", interface, PANDA)
    with pytest.raises(BadInput, match="max_steps: got 0"):
        make_device("scripted", interface, PANDA, teleoperator=Counting(), succeeded=bool, max_steps=0)


class Fixed:
    """A device that says what it is told."""

    name = "fixed"

    def __init__(self, *samples: Sample) -> None:
        self.samples = list(samples)
        self.opened = self.shown = False

    def open(self) -> None:
        self.opened = True

    def close(self) -> None:
        self.opened = False

    def sample(self, observation: Mapping[str, NDArray] | None) -> Sample:
        return self.samples.pop(0)

    def prepared(self) -> None: ...

    def show(self, status: Status) -> None:
        self.shown = True


def action(value: float) -> NDArray[np.float32]:
    return np.full(7, value, dtype=np.float32)


SAMPLES = (
    Sample(None, False, (START,), 1.0, "hold LB to move"),
    Sample(action(0.25), True, (), 2.0),
    Sample(action(-1.0), True, (SUCCESS, EpisodeEvent.QUIT), 3.0),
)


def test_a_log_says_again_what_the_device_said(interface: Interface, tmp_path: Path) -> None:
    path = tmp_path / "device.jsonl"
    device = Logged(Fixed(*SAMPLES), interface, path)
    assert isinstance(device, Device)
    device.open()
    for _ in SAMPLES:
        device.sample(None)
    device.show(status("recording"))
    device.close()
    again = make_device("recorded", interface, PANDA, path=path, realtime=False)
    again.open()
    for expected in SAMPLES:
        sample = again.sample(None)
        assert (sample.engaged, sample.events, sample.note) == (expected.engaged, expected.events, expected.note)
        np.testing.assert_array_equal(sample.action, expected.action)
    end = again.sample(None)
    assert not end.engaged and end.note == "recorded: the log has ended"
    again.close()
    assert again.sample(None).note == "recorded: closed"


HEADER = {
    "robolearn_device_log": 1,
    "device": "pad",
    "embodiment": "panda",
    "action_kind": "tcp_delta",
    "action": 7,
}


def log(path: Path, *lines: dict, header: dict = HEADER, tail: str = "") -> Path:
    path.write_text("".join(json.dumps(line) + "\n" for line in (header, *lines)) + tail)
    return path


def test_a_log_plays_in_its_own_time(interface: Interface, tmp_path: Path, clock) -> None:
    path = log(
        tmp_path / "log.jsonl",
        {"t": 0.1, "action": [0.1] * 7, "engaged": True, "events": ["start"]},
        {"t": 0.2, "action": [0.2] * 7, "engaged": True, "events": ["success"]},
        {"t": 0.3, "action": [0.3] * 7, "engaged": True, "events": []},
        tail='{"t": 0.4, "act',  # the program died while it wrote
    )
    device = make_device("recorded", interface, PANDA, path=path, clock=clock)
    device.open()
    opened = clock.now
    assert device.sample(None) == Sample(None, False, (), opened, "")
    clock.now = opened + 0.15
    for events in ((START,), ()):
        sample = device.sample(None)
        assert sample.events == events and sample.action is not None and sample.action[0] == np.float32(0.1)
    clock.now = opened + 0.35
    sample = device.sample(None)
    assert sample.events == (SUCCESS,) and sample.action is not None and sample.action[0] == np.float32(0.3)
    assert sample.stamp == pytest.approx(opened + 0.3)
    assert not device.sample(None).engaged


@pytest.mark.parametrize(
    ("line", "says"),
    [
        ({"t": -1.0}, "line 3: t: got -1.0, expected a time of at least 0.5 s"),
        ({"t": "now"}, "line 3: t"),
        ({"action": [0.0] * 6}, "line 3: action"),
        ({"action": [2.0] * 7}, "expected 7 in [-1, 1]"),
        ({"action": [None] * 7}, "line 3: action"),
        ({"action": "x"}, "line 3: action"),
        ({"engaged": 1}, "line 3: engaged: got 1, expected true or false"),
        ({"events": ["sucess"]}, "did you mean success?"),
        ({"events": 3}, "line 3: event: got 3"),
    ],
)
def test_a_broken_line_is_named(interface: Interface, tmp_path: Path, line: dict, says: str) -> None:
    good = {"t": 0.5, "action": None, "engaged": True, "events": []}
    path = log(tmp_path / "log.jsonl", good, good | line)
    with pytest.raises(BadInput) as error:
        make_device("recorded", interface, PANDA, path=path)
    assert says in str(error.value) and "log.jsonl" in str(error.value)


def test_a_log_of_another_arm_is_refused(interface: Interface, tmp_path: Path) -> None:
    for header, says in (
        (HEADER | {"embodiment": "so101"}, "line 1: embodiment: got so101, expected panda"),
        (HEADER | {"robolearn_device_log": 2}, "robolearn_device_log: got 2, expected 1"),
        ({}, "line 1: robolearn_device_log: expected 1"),
    ):
        with pytest.raises(BadInput, match=says):
            make_device("recorded", interface, PANDA, path=log(tmp_path / "log.jsonl", header=header))
    (tmp_path / "log.jsonl").write_text("words\n")
    with pytest.raises(BadInput, match="line 1: got 'words', expected a JSON object"):
        make_device("recorded", interface, PANDA, path=tmp_path / "log.jsonl")
    with pytest.raises(BadInput, match="No such file"):
        make_device("recorded", interface, PANDA, path=tmp_path / "none.jsonl")
    with pytest.raises(BadInput, match="recorded: got no log"):
        make_device("recorded", interface, PANDA)


def test_a_log_is_never_overwritten_and_none_is_left_without_a_device(interface: Interface, tmp_path: Path) -> None:
    path = log(tmp_path / "log.jsonl")
    fixed = Fixed()
    with pytest.raises(BadInput, match="File exists"):
        Logged(fixed, interface, path).open()
    assert not fixed.opened
    missing = tmp_path / "missing.jsonl"
    with pytest.raises(BadInput, match="gamepad"):
        make_device("gamepad", interface, PANDA, log=missing, index=99).open()
    assert not missing.exists()
