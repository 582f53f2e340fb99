"""`robolearn benchmark worlds`, for as short as it can."""

from __future__ import annotations

import json

import pytest

from robolearn.cli.main import main

pytestmark = pytest.mark.long


def test_the_price_of_the_bridge_is_what_a_process_costs_more(capsys: pytest.CaptureFixture[str]) -> None:
    flags = ["--worlds", "5", "--image-size", "32", "--seconds", "0.1", "--repeats", "1"]
    assert main(["benchmark", "worlds", *flags, "--json"]) == 0
    result = json.loads(capsys.readouterr().out)
    for us in result["step_us"].values():
        assert us["own"] == pytest.approx(us["bridge"] - us["here"]) and us["here"] > 0
    bytes_a_step = 5 * 32 * 32 * 3
    assert result["pictures_gb_per_s"] == pytest.approx(bytes_a_step / (result["step_us"]["pictures"]["bridge"] * 1e3))
    assert main(["benchmark", "worlds", "--world-python", "/no/such", *flags]) == 2
    assert "--world-python /no/such: got no such file" in capsys.readouterr().err


def test_workers_are_measured_beside_one_process(capsys: pytest.CaptureFixture[str]) -> None:
    """Of a decision go at least 8 actions of 7 numbers there, and what a world shows comes back."""
    flags = ["--worlds", "2", "--image-size", "32", "--seconds", "0.1", "--repeats", "1", "--workers", "2"]
    assert main(["benchmark", "worlds", *flags, "--task", "lift", "--json"]) == 0
    result = json.loads(capsys.readouterr().out.splitlines()[-1])["workers"]
    assert list(result) == ["here", "2"] and all(one["steps_per_s"] > 0 for one in result.values())
    assert result["here"]["bytes_per_step"] == 0 and 4 * 7 < result["2"]["bytes_per_step"] < 2000
    assert result["2"]["cpu_us_per_step"] < result["here"]["cpu_us_per_step"]
    assert main(["benchmark", "worlds", *flags]) == 2
    assert "--workers: got no --task, expected a task" in capsys.readouterr().err
    assert main(["benchmark", "sim", "--workers", "2"]) == 2
    assert "--workers: got 2, expected none: one process is measured" in capsys.readouterr().err
