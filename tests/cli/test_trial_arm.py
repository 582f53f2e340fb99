"""``robolearn trial`` beside a real arm: command, session and the person's keys are the product's; the nodes and the
safety node's client are doubles."""

from __future__ import annotations

import io
import json
import sys
from collections import Counter
from collections.abc import Callable, Mapping
from pathlib import Path
from types import MappingProxyType, SimpleNamespace
from typing import Any

import pytest
import yaml

sys.path.insert(0, str(Path(__file__).parent))
from untrained import make_constant

from robolearn.cli.main import main
from robolearn.core import RobolearnError
from robolearn.deploy import deployment
from robolearn.eval.trials.plan import TrialPlan
from robots.stations import CONTRACTS, load_contract

LIMIT_S = 0.1


class Nodes:
    """Processes that come up and end as asked."""

    codes: Mapping[str, int] = MappingProxyType({})

    def __init__(self, *_: Any) -> None:
        pass

    def __enter__(self) -> Nodes:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def check(self) -> None:
        pass


class Switch(Nodes):
    """The client of a safety node that refuses to arm where `refusals` say why, one for each arming."""

    report = SimpleNamespace(values={})

    def __init__(self, refusals: list[str]) -> None:
        self._refusals = refusals
        self.state, self.reason, self.armed = "disarmed", "", 0
        self.policy: dict[str, Any] = {}

    def publish_json(self, topic: str) -> Callable[[dict[str, Any]], None]:
        return lambda message: None

    def check_heard(self) -> None:
        pass

    def arm(self, timeout_s: float = 1.0) -> None:
        if refusal := self._refusals.pop(0):
            raise RobolearnError(refusal)
        self.state, self.armed = "armed", self.armed + 1

    def disarm(self, timeout_s: float = 1.0) -> None:
        self.state = "disarmed"


@pytest.fixture
def arm(tmp_path: Path) -> Path:
    """The contract of a real arm without cameras, whose gripper follows a topic."""
    content = yaml.safe_load((CONTRACTS / "fr3.yaml").read_text())
    content["gripper"].pop("action")
    (tmp_path / "arm.yaml").write_text(yaml.safe_dump(content))
    return tmp_path / "arm.yaml"


@pytest.fixture
def policies(arm: Path, tmp_path: Path) -> tuple[str, ...]:
    """Two policies, as flags."""
    interface = load_contract(str(arm)).interface
    made = {name: make_constant(tmp_path / name, interface, dz=dz) for name, dz in (("up", 0.1), ("on", 0.0))}
    return tuple(f"{name}={path}" for name, path in made.items())


def planned(arm: Path, policies: tuple[str, ...], folder: Path, *flags: Any) -> TrialPlan:
    """The plan of two blocks on the arm, in `folder`."""
    words = ("--policies", *policies, "--arm", arm, "--blocks", 2, "--seconds", LIMIT_S, *flags, "--out", folder)
    assert main([str(word) for word in ("trial", "plan", *words)]) == 0
    return TrialPlan.read(folder)


def at_the_arm(monkeypatch: pytest.MonkeyPatch, keys: str, refusals: list[str]) -> None:
    """The doubles, and what the person types."""
    import hardware.ros2.safety_client

    monkeypatch.setenv("ROS_DOMAIN_ID", "64")
    monkeypatch.setattr(hardware.ros2.safety_client, "SafetyClient", lambda **_: Switch(refusals))
    monkeypatch.setattr(deployment, "StackProcesses", Nodes)
    monkeypatch.setattr(deployment, "wait_ready", lambda *_, **__: None)
    monkeypatch.setattr(sys, "stdin", io.StringIO(keys))


def run(folder: Path) -> list[dict[str, Any]]:
    """The episodes that `trial run` stores."""
    assert main(["trial", "run", str(folder), "--yes"]) == 0
    rows = [json.loads(line) for line in (folder / "episodes.jsonl").read_text().splitlines()]
    return [row for row in rows if row["outcome"] != "begun"]


def verdict(folder: Path, capsys: pytest.CaptureFixture) -> dict[str, Any]:
    capsys.readouterr()
    assert main(["trial", "judge", str(folder), "--json"]) == 0
    return json.loads(capsys.readouterr().out.splitlines()[-1])


@pytest.mark.long
def test_help_and_a_refused_arming_are_outcomes_of_their_own(
    arm: Path, policies: tuple[str, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture
):
    """A person took over in the first episode; the second was refused; the others were solved, and not."""
    plan = planned(arm, policies, tmp_path / "trial")
    at_the_arm(monkeypatch, "i\ny\nn\n", ["", "not armed: no controller listens", "", ""])
    rows = run(tmp_path / "trial")
    assert [row["outcome"] for row in rows] == ["intervention", "refused", "success", "timeout"]
    assert [row["judged"] for row in rows] == [{"person": False}, {}, {"person": True}, {"person": False}]
    assert rows[1]["reason"] == "not armed: no controller listens" and rows[1]["seconds"] == 0.0
    assert all(LIMIT_S <= row["seconds"] < 5.0 for row in rows if row["outcome"] != "refused")
    found = verdict(tmp_path / "trial", capsys)
    acted = [plan.slot(i).policy for i in range(4)]
    for name, one in found["policies"].items():
        kinds = [row["outcome"] for row, who in zip(rows, acted, strict=True) if who == name]
        assert one["outcomes"] == Counter(kinds)
        assert one["success"]["rate"] == kinds.count("success") / 2, "help and refusals are no successes"
