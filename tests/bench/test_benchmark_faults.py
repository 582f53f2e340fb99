"""`robolearn benchmark faults`: real nodes over real DDS, and what it would say of a fault that nobody notices."""

from __future__ import annotations

import json
import os
from typing import Any

import pytest

from robolearn.bench.faults.benchmark import BenchmarkFaults, _worst
from robolearn.cli.main import main

pytestmark = [pytest.mark.realtime, pytest.mark.long]

DOMAIN = int(os.environ["ROS_DOMAIN_ID"]) + 2


def test_a_few_of_them(capsys: pytest.CaptureFixture[str]) -> None:
    faults = ("emergency stop", "meets the table", "joint states: NaN", "contact sensor: NaN", "stamped anew")
    words = ["benchmark", "faults", "--domain", str(DOMAIN), "--only", *faults, "--json"]
    assert main(words) == 0, capsys.readouterr()
    result = json.loads(capsys.readouterr().out.splitlines()[-1])
    rows = {row["fault"]: row for row in result["faults"]}
    assert result["count"] == len(rows) == 7 and result["failed"] == result["violations"] == 0
    assert "contact on /external_joint_torques" in rows["hand meets the table"]["reason"]
    assert not rows["hand meets the table, no sensor"]["noticed"], "which is what the sensor is for"
    late = rows["joint states: 0.5 s late, stamped anew"]
    assert any(words in late["reason"] for words in ("jumped by", "follows its commands 0.")), late
    assert late["reported_ms"] < 5000.0 and late["each_ms"] == [late["reported_ms"]], late
    for name in ("emergency stop", "joint states: NaN", "contact sensor: NaN"):
        assert 0.0 < rows[name]["reported_ms"] < 500.0 and 0.0 < rows[name]["stands_ms"] < 800.0, rows[name]


def test_a_fault_that_is_not_noticed_is_a_failure() -> None:
    found = {"fault": "x", "noticed": True, "expected": True, "reason": "y", "reported_ms": 5.0, "stands_ms": 40.0}
    missed = found | {"noticed": False, "expected": False, "reported_ms": None, "stands_ms": None}
    rows: list[dict[str, Any]] = [row | {"violations": 1} for row in (found, missed, found)]
    worst = _worst(rows)
    assert not worst["expected"] and worst["reported_ms"] is None and worst["violations"] == 3
    command = BenchmarkFaults()
    assert command.exit_code({"failed": 1, "violations": 0}) == command.exit_code({"failed": 0, "violations": 1}) == 1
    assert _worst(rows[::2])["stands_ms"] == 40.0


def test_no_such_fault(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["benchmark", "faults", "--only", "earthquake"]) == 2
    assert "got earthquake; available: policy node killed" in capsys.readouterr().err
