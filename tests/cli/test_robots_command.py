"""``robolearn robots``: a folder is made, checked by another process, and broken."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))
from running import PROGRAM, ROOT

from robolearn.cli.main import main
from robots import PANDA

pytestmark = pytest.mark.long


def check(top: Path, *flags: object) -> tuple[int, dict[str, bool]]:
    """Exit code, and rule → whether it holds, of a process that knows the arms in `top`."""
    env = {**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1", "ROBOLEARN_ROBOTS": str(top)}
    words = [*PROGRAM, "robots", "check", "kinova3", *map(str, flags), "--json"]
    done = subprocess.run(words, env=env, capture_output=True, text=True)
    return done.returncode, {one["rule"]: one["ok"] for one in json.loads(done.stdout.splitlines()[-1])["rules"]}


def test_an_arm_is_made_checked_and_lifts_a_cube(tmp_path: Path, capsys: pytest.CaptureFixture):
    import robosuite

    mjcf = Path(robosuite.__file__).parent / "models" / "assets" / "robots" / "kinova3" / "robot.xml"
    top = tmp_path / "arms"
    assert main(["robots", "new", "kinova3", "--mjcf", str(mjcf), "--out", str(top)]) == 0
    out = capsys.readouterr().out
    assert f"export ROBOLEARN_ROBOTS={top}" in out and "velocity: 1 rad/s of every joint" in out
    assert main(["robots", "new", "kinova3", "--mjcf", str(mjcf), "--out", str(top)]) == 2
    assert main(["robots", "new", "other", "--out", str(top)]) == 2
    assert "either --urdf or --mjcf" in capsys.readouterr().err
    code, rules = check(top, "--episodes", 4)
    assert code == 0 and len(rules) == 14 and all(rules.values())
    contract = top / "kinova3" / "station.yaml"
    contract.write_text(contract.read_text().replace("lower: [0.25, -0.40, 0.01]", "lower: [0.60, -0.40, 0.01]"))
    code, rules = check(top, "--episodes", 0)
    assert code == 1 and [rule for rule, ok in rules.items() if not ok] == [
        "its contract can be read, and the safety filter arms it at home and in its workspace around"
    ]
    assert main(["robots", "check", str(top / "kinova3"), "--episodes", "0"]) == 1  # this process does not know it
    assert "export ROBOLEARN_ROBOTS=" in capsys.readouterr().out
    assert main(["robots", "check", "nowhere"]) == 2


def test_a_contract_that_cannot_be_read_is_named_and_the_rest_listed(tmp_path: Path) -> None:
    arm = tmp_path / "odd"
    arm.mkdir()
    names = ("joints", "home", "velocity", "acceleration", "jerk", "effort")
    facts = {name: list(getattr(PANDA, name)) for name in names} | {"name": "odd", "source": "a test"}
    (arm / "robot.yaml").write_text(json.dumps(facts))
    (arm / "model.xml").write_bytes(PANDA.mjcf.read_bytes())
    (arm / "station.yaml").write_text("robot: odd\n")
    env = {**os.environ, "PYTHONPATH": str(ROOT), "ROBOLEARN_ROBOTS": str(tmp_path)}
    done = subprocess.run([*PROGRAM, "robots"], env=env, capture_output=True, text=True)
    assert done.returncode == 0 and not done.stderr
    said = f"contract odd cannot be read: {arm / 'station.yaml'}: missing; expected the key 'action_kind'"
    assert said in done.stdout
    assert {"odd", "panda", "fr3"} <= {line.split(" ")[0] for line in done.stdout.splitlines()}
