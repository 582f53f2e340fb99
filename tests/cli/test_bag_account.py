"""Accounts of bags: ages of messages in numbers, and small steps back of a clock."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

sys.path.insert(0, str(Path(__file__).parent))
from bag_recorder import T0, Recorder, write_contract

from robolearn.cli.main import main
from robots.stations import load_contract


@pytest.mark.long
def test_small_steps_back_are_counted_and_every_age_is_a_number(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def step(recorder: Recorder) -> None:
        """The camera's clock is set back by 90 ms, once in each of two episodes, and forwards again between them."""
        for at, topic, _, message in recorder.said:
            if topic == "/front/image" and (T0 + 1.2e9 < at < T0 + 2.2e9 or at > T0 + 2.9e9):
                ns = message.header.stamp.sec * 10**9 + message.header.stamp.nanosec - 90_000_000
                message.header.stamp.sec, message.header.stamp.nanosec = divmod(ns, 10**9)

    def imported(name: str, change: Callable[[Recorder], None]) -> dict[str, Any]:
        contract = write_contract(tmp_path)
        station = load_contract(contract)
        recorder = Recorder(station)
        q = recorder.move(0.5, np.array(station.robot.home))
        q = recorder.episode(1.5, q, "success", "lift the cube")
        recorder.episode(1.0, q, "failure")
        change(recorder)
        bag = recorder.write(tmp_path / f"{name}.bag")
        words = ["dataset", "import", bag, "--robot", contract, "--out", tmp_path / name, "--json"]
        assert main([str(word) for word in words]) == 0
        return json.loads(capsys.readouterr().out)

    plain = imported("plain", lambda recorder: None)
    assert not any("step back" in line for line in plain["changed"])
    roles = {"joint_states", "command", "gripper", "images.front", "images.wrist"}
    assert set(plain["age_s"]) == roles
    assert all(0 < age["p50"] <= age["p99"] <= age["worst"] for age in plain["age_s"].values())
    # Commands of 100 Hz, looked at when a frame ends; the gripper repeats its own every six frames of 50 ms.
    assert plain["age_s"]["command"]["worst"] < 0.015 < 0.2 < plain["age_s"]["gripper"]["worst"] < 0.4
    (line,) = (line for line in plain["read"] if line.startswith("/arm/command → command ("))
    worst = 1e3 * plain["age_s"]["command"]["worst"]
    assert "age at the end of a frame: p50 " in line and line.endswith(f"at most {worst:.0f} ms)")
    said = imported("stepped", step)["changed"]
    (line,) = (line for line in said if "step back" in line)
    count, by = re.findall(r"/front/image: its stamps step back (\d+) times, by ([\d.]+) s at most", line)[0]
    assert count == "2" and 0.03 < float(by) < 0.09
