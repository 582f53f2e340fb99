"""`robolearn benchmark safety`: what it counts, and that it would see a filter that does not work."""

from __future__ import annotations

import json

import pytest

from hardware.safety.motion import Motion
from hardware.safety.output import Output
from robolearn.bench.safety.benchmark import BenchmarkSafety
from robolearn.cli.main import main


@pytest.mark.long
def test_result(capsys) -> None:
    assert main(["benchmark", "safety", "--commands", "1500", "--seed", "4", "--json"]) == 0
    result = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert result["commands"] == 1500 and result["violations"] == 0 and result["violations_by_kind"] == {}
    assert result["latched"] > 0 and sum(result["refusals"].values()) >= result["latched"]
    assert 0 < result["filter_us"]["p50"] <= result["filter_us"]["p99"]
    assert 0 < result["motion_us"]["p50"] <= result["motion_us"]["p99"] and result["motion_us"]["commands"] == 1500
    assert all(0 < result["peak"][key] <= 1 for key in ("velocity", "acceleration", "jerk"))


@pytest.mark.long
def test_for_people(capsys) -> None:
    assert main(["benchmark", "safety", "--commands", "600", "--postures", "200"]) == 0
    out = " ".join(capsys.readouterr().out.split())
    assert "600 fuzzed commands: no violation" in out and "µs; 600 commands)" in out
    assert "200 postures" in out and "0 let through" in out and "1 times: 0 overlaps" in out


@pytest.mark.parametrize(("flag", "value"), [("--commands", "0"), ("--robot", "pandas"), ("--seed", "-1")])
def test_bad_input(flag: str, value: str, capsys) -> None:
    assert main(["benchmark", "safety", flag, value]) == 2
    assert flag in capsys.readouterr().err


def test_a_filter_that_does_not_work_is_seen(monkeypatch) -> None:
    monkeypatch.setattr(Motion, "toward", lambda self, goal: (goal, self.v, self.a))
    monkeypatch.setattr(Output, "check", lambda self, q: None)
    result = BenchmarkSafety(commands=1000, json=True).run()
    assert result["violations"] > 50 and result["violations_by_kind"]["velocity"] > 0
