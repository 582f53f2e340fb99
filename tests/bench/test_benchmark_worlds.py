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
