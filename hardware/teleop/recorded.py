"""Logs of devices: `Logged` writes the samples of a device, `Recorded` plays them, in tests and for reports of faults.

A log is a text file of JSON objects, one a line: first what spoke, then one line per sample,

    {"robolearn_device_log": 1, "device": "gamepad", "embodiment": "panda", "action_kind": "tcp_delta", "action": 7}
    {"t": 0.05, "action": [0, …], "engaged": true, "events": ["start"]}

with t in seconds since the device was opened.
"""

from __future__ import annotations

import json
import math
import time
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, TextIO

import numpy as np
from numpy.typing import NDArray

from hardware.teleop.device import Clock, Device, EpisodeEvent, Sample, TeleopConfig
from hardware.teleop.wrapped import Wrapped
from robolearn.core.errors import BadInput, check_choice
from robolearn.core.specs import Interface

if TYPE_CHECKING:
    from robots import RobotSpec

VERSION = 1


def _header(device: str, interface: Interface) -> dict[str, Any]:
    action = {"action_kind": interface.action_kind, "action": interface.action.size}
    return {"robolearn_device_log": VERSION, "device": device, "embodiment": interface.embodiment, **action}


class Logged(Wrapped):
    """`device`, whose samples are written down as they come, into a new log at `path`."""

    def __init__(self, device: Device, interface: Interface, path: str | Path) -> None:
        super().__init__(device)
        self._interface, self._path = interface, Path(path)
        self._file: TextIO | None = None
        self._opened = 0.0

    def open(self) -> None:
        """See `Device.open`.

        Raises:
          BadInput: the device is missing, or the log cannot be made.
        """
        try:
            self._file = self._path.open("x", encoding="utf-8")
        except OSError as error:
            raise BadInput(f"device log {self._path}", got=error.strerror, expected="a path for a new file") from error
        try:
            self._device.open()
        except BaseException:
            self._file.close()
            self._path.unlink(missing_ok=True)
            self._file = None
            raise
        self._opened = time.monotonic()
        self._write(_header(self.name, self._interface))

    def close(self) -> None:
        self._device.close()
        if self._file is not None:
            self._file.close()
            self._file = None

    def sample(self, observation: Mapping[str, NDArray] | None) -> Sample:
        sample = self._device.sample(observation)
        line: dict[str, Any] = {
            "t": round(time.monotonic() - self._opened, 6),
            "action": None if sample.action is None else [round(float(a), 6) for a in sample.action],
            "engaged": sample.engaged,
            "events": [str(event) for event in sample.events],
        }
        self._write(line | ({"note": sample.note} if sample.note else {}))
        return sample

    def _write(self, value: dict[str, Any]) -> None:
        if self._file is not None:  # flushed, for the lines before a crash are those that are needed
            print(json.dumps(value), file=self._file, flush=True)


@dataclass(frozen=True)
class RecordedConfig(TeleopConfig):
    """A log of another device.

    Attributes:
      path: of the log.
      realtime: keep the times of the log; otherwise each call of `sample` takes the next line.
    """

    name: ClassVar[str] = "recorded"
    is_person: ClassVar[bool] = False
    shows_in_terminal: ClassVar[bool] = False
    has_flags: ClassVar[bool] = False

    path: str | Path | None = None
    realtime: bool = True

    def for_arms(self, arms: tuple[str, ...]) -> tuple[TeleopConfig, ...]:
        """This one, for all arms."""
        return (self,)

    def build(self, interface: Interface, robot: RobotSpec, **parts: Any) -> Recorded:
        return Recorded(interface, self, **parts)


class Recorded(Device):
    """A `Device` that returns the samples of another one, of the same `interface`; at the end of the log it is gone."""

    name = "recorded"

    def __init__(self, interface: Interface, config: RecordedConfig, clock: Clock = time.monotonic) -> None:
        self._lines, self._realtime, self._clock = read_log(config.path, interface), config.realtime, clock
        self._next: int | None = None  # None: not open
        self._opened = 0.0

    def open(self) -> None:
        self._next, self._opened = 0, self._clock()

    def close(self) -> None:
        self._next = None

    def sample(self, observation: Mapping[str, NDArray] | None) -> Sample:
        """See `Device.sample`; events of lines that were skipped are not lost."""
        if self._next is None:
            return Sample(None, False, (), self._opened, "recorded: closed")
        if self._next >= len(self._lines):
            stamp = self._opened + (self._lines[-1].stamp if self._lines else 0.0)
            return Sample(None, False, (), stamp, "recorded: the log has ended")
        first, elapsed = self._next, self._clock() - self._opened
        end = first + 1
        if self._realtime:
            while end < len(self._lines) and self._lines[end].stamp <= elapsed:
                end += 1
            if self._lines[first].stamp > elapsed:  # not yet: the last sample again, without its events
                last = self._lines[first - 1] if first else Sample(None, False, (), 0.0)
                return replace(last, events=(), stamp=self._opened + last.stamp)
        self._next = end
        events = tuple(event for sample in self._lines[first:end] for event in sample.events)
        newest = self._lines[end - 1]
        return replace(newest, events=events, stamp=self._opened + newest.stamp)


def read_log(path: str | Path | None, interface: Interface) -> list[Sample]:
    """The samples of a log, stamped in seconds since the device was opened.

    Raises:
      BadInput: there is no such file, it is of another arm or kind of action, or a line is broken; named with its
        number.
    """
    if path is None:
        raise BadInput("recorded", got="no log", expected="the path of one")
    what = f"device log {path}"
    try:
        text = Path(path).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise BadInput(what, got=error, expected="a log that `Logged` wrote") from error
    # A line without its end was being written when the program died.
    rows = text.split("\n")[:-1]
    header = _parse(f"{what}, line 1", rows[0] if rows else "")
    expected = _header(str(header.get("device")), interface)
    for key, value in expected.items():
        if header.get(key) != value:
            raise BadInput(f"{what}, line 1: {key}", got=header.get(key), expected=value)
    samples: list[Sample] = []
    for number, row in enumerate(rows[1:], start=2):
        samples.append(_line(f"{what}, line {number}", row, interface, samples[-1].stamp if samples else 0.0))
    return samples


def _parse(what: str, row: str) -> dict[str, Any]:
    try:
        value = json.loads(row)
    except json.JSONDecodeError:
        value = None
    if not isinstance(value, dict):
        raise BadInput(what, got=repr(row[:40]), expected="a JSON object")
    return value


def _line(what: str, row: str, interface: Interface, after: float) -> Sample:
    value = _parse(what, row)
    t, action, events = value.get("t"), value.get("action"), value.get("events", [])
    if isinstance(t, bool) or not isinstance(t, int | float) or not math.isfinite(t) or t < after:
        raise BadInput(f"{what}: t", got=t, expected=f"a time of at least {after:g} s")
    if action is not None:
        try:
            action = np.asarray(action, dtype=np.float32)
        except (TypeError, ValueError) as error:
            raise BadInput(f"{what}: action", got=action, expected="numbers") from error
        if action.shape != interface.action.shape or not (np.abs(action) <= 1).all():
            raise BadInput(f"{what}: action", got=value["action"], expected=f"{interface.action.size} in [-1, 1]")
    if not isinstance(value.get("engaged"), bool):
        raise BadInput(f"{what}: engaged", got=value.get("engaged"), expected="true or false")
    known = [str(event) for event in EpisodeEvent]
    for event in events if isinstance(events, list) else [events]:
        check_choice(f"{what}: event", event, known)
    return Sample(action, value["engaged"], tuple(map(EpisodeEvent, events)), float(t), value.get("note", ""))
