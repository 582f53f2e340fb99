"""``robolearn trial`` beside a real arm: command, session and the person's keys are the product's; the nodes and the
safety node's client are doubles."""

from __future__ import annotations

import io
import json
import os
import pty
import signal
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Callable, Mapping
from pathlib import Path
from types import MappingProxyType, SimpleNamespace
from typing import Any

import pytest
import yaml

sys.path.insert(0, str(Path(__file__).parent))
from running import PROGRAM, ROOT, WAIT_S
from untrained import make_constant

from robolearn.cli.main import main
from robolearn.core import RobolearnError
from robolearn.deploy import deployment
from robolearn.eval.trials.plan import TrialPlan
from robots.stations import CONTRACTS, load_contract
from sim.registry import make_env

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
    """The client of a safety node that refuses to arm where `refusals` say why, one for each arming. It hears of the
    reward model what `called` says, one for each episode."""

    def __init__(self, refusals: list[str], called: list[dict[str, Any]]) -> None:
        self._refusals, self._called = refusals, called
        self.report = SimpleNamespace(values={}, arming="")
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
        self.report.arming = f"arming {self.armed}"

    def disarm(self, timeout_s: float = 1.0) -> None:
        if self._called:
            said = {"episode": self.report.arming, "settled": True, "over": True, "fault": ""}
            self.policy["reward"] = said | self._called.pop(0)
        self.state, self.report.arming = "disarmed", ""


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


def at_the_arm(monkeypatch: pytest.MonkeyPatch, keys: str, refusals: list[str], *called: dict[str, Any]) -> None:
    """The doubles, and what the person types."""
    import hardware.ros2.safety_client

    monkeypatch.setenv("ROS_DOMAIN_ID", "64")
    said = list(called)
    monkeypatch.setattr(hardware.ros2.safety_client, "SafetyClient", lambda **_: Switch(refusals, said))
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


@pytest.fixture
def model(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """A reward model that nobody asks here: the policy node, which would, is a double."""
    (tmp_path / "own_judge.py").write_text(
        "class Model:\n    def __init__(self, interface): pass\n    def score(self, windows, prompts): return []\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    return "own_judge:Model"


@pytest.mark.long
@pytest.mark.parametrize(
    ("outcome", "expected"),
    [
        ("person", ["success", "timeout", "timeout", "intervention"]),
        ("classifier", ["success", "success", "timeout", "intervention"]),
    ],
)
def test_person_and_reward_model_judge_and_the_plan_says_whose_verdict_counts(
    outcome: str, expected: list[str], arm: Path, policies: tuple[str, ...], model: str, tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture,
):  # fmt: skip
    folder = tmp_path / "trial"
    plan = planned(arm, policies, folder, "--reward", model, "--outcome", outcome)
    assert (plan.outcome, plan.classifier) == (outcome, model) and plan.hashes["classifier"]
    shown = " ".join(capsys.readouterr().out.split())
    assert f"judged by the {outcome} (--reward {model} is recorded)" in shown
    called = [{"done": done} for done in (True, True, False, True)]
    at_the_arm(monkeypatch, "y\nn\nn\ni\n", [""] * 4, *called)
    rows = run(folder)
    assert [row["outcome"] for row in rows] == expected
    pairs = [(True, True), (False, True), (False, False), (False, True)]
    assert [(row["judged"]["person"], row["judged"]["classifier"]) for row in rows] == pairs
    said = capsys.readouterr()
    assert said.err.count("Did it succeed?") == 4 and "called" not in said.err + said.out, "the model's is not told"
    found = verdict(folder, capsys)["agreement"]
    kappa = (2 / 4 - (1 * 3 + 3 * 1) / 16) / (1 - (1 * 3 + 3 * 1) / 16)  # Cohen (1960), by hand
    assert found == {"both": 1, "only": 0, "classifier": 2, "neither": 1, "kappa": pytest.approx(kappa)}
    assert main(["trial", "judge", str(folder)]) == 0
    shown = " ".join(capsys.readouterr().out.split())
    assert "judges agree in 2 of 4 episodes, kappa 0.20; 2 solved by the reward model alone, 0 by the other" in shown


@pytest.mark.long
def test_a_reward_model_that_gives_no_verdict_is_no_judge(
    arm: Path, policies: tuple[str, ...], model: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture, caplog: pytest.LogCaptureFixture,
):  # fmt: skip
    """It failed; or what the policy node reports is the verdict on an episode of before."""
    monkeypatch.setattr("robolearn.deploy.reward_verdicts.WAIT_S", 0.1)
    failed, old = {"done": False, "fault": "no GPU"}, {"done": True, "episode": "arming 0"}
    planned(arm, policies, tmp_path / "beside", "--reward", model)
    at_the_arm(monkeypatch, "n\n" * 4, [""] * 4, failed, old, failed, old)
    assert [row["judged"] for row in run(tmp_path / "beside")] == [{"person": False}] * 4
    assert caplog.text.count("no verdict of the reward model on this episode: no GPU") == 2
    assert caplog.text.count("no verdict of the reward model on this episode: none within 0.1 s") == 2
    planned(arm, policies, tmp_path / "counts", "--reward", model, "--outcome", "classifier")
    at_the_arm(monkeypatch, "y\n", [""], failed)
    capsys.readouterr()
    assert main(["trial", "run", str(tmp_path / "counts"), "--yes"]) == 1
    assert "the episode was not judged: no verdict of the reward model" in capsys.readouterr().err
    assert '"abandoned"' in (tmp_path / "counts" / "episodes.jsonl").read_text(), "it is repeated"


HIGHER = """
import numpy as np
from robolearn.core import Score


class Model:
    def __init__(self, interface):
        self.z = interface.observation["proprio"].names.index("tcp_z")

    def score(self, windows, prompts):
        (window,) = windows
        z = window.observation["proprio"][:, self.z]
        done = z[1:] > z[0] + 0.03
        return [Score(done.astype("f4"), done.astype("f4"), done, np.ones(len(done), "f4"))]
"""


def on_a_terminal(folder: Path, *command: object, **environment: str) -> tuple[int, str]:
    """Exit code of the command at a terminal in `folder`, and all that it showed there."""
    ours, theirs = pty.openpty()
    env = {**os.environ, "PYTHONPATH": f"{ROOT}:{folder}", "OMP_NUM_THREADS": "1", "COLUMNS": "200", **environment}
    process = subprocess.Popen([*PROGRAM, *map(str, command)], stdin=theirs, stdout=theirs, stderr=theirs, env=env,
                               cwd=folder, start_new_session=True)  # fmt: skip
    os.close(theirs)
    shown = bytearray()

    def read() -> None:
        try:
            while data := os.read(ours, 65536):
                shown.extend(data)
        except OSError:  # the other end is closed
            pass

    reader = threading.Thread(target=read)
    reader.start()
    try:
        code = process.wait(WAIT_S)
    except BaseException:
        os.killpg(process.pid, signal.SIGKILL)
        raise
    finally:
        reader.join(10)
        os.close(ours)
    return code, shown.decode(errors="replace")


@pytest.mark.long
@pytest.mark.realtime
def test_a_whole_trial_on_the_simulated_arm_shows_no_policy_before_the_verdict(tmp_path: Path):
    """One policy rests, one goes up as the reward model wants it, one until the filter stops it."""
    interface: Any = make_env("lift", 1, threads=1).interface  # type: ignore[attr-defined]
    parts = {"quartz": ("weights_of_1", 0.0), "basalt": ("weights_of_2", -0.3), "gypsum": ("weights_of_3", -1.0)}
    flags = []
    for name, (folder, dz) in parts.items():
        flags += [f"{name}={make_constant(tmp_path / folder, interface, dz=dz)}"]
    (tmp_path / "higher.py").write_text(HIGHER)
    reward = ("--reward", "higher:Model", "--outcome", "classifier")
    words = ("--policies", *flags, "--arm", "sim", "--blocks", 1, *reward, "--out", tmp_path / "trial")
    code, shown = on_a_terminal(tmp_path, "trial", "plan", *words)
    assert code == 0, shown
    domain = int(os.environ["ROS_DOMAIN_ID"]) + 3
    code, shown = on_a_terminal(tmp_path, "trial", "run", tmp_path / "trial", "--domain", domain)
    assert code == 0 and "3 of at most 3 episodes" in shown and "singularity" in shown, shown
    secret = {*parts, *(folder for folder, _ in parts.values())}
    assert not [word for word in secret if word in shown], shown
    rows = [json.loads(line) for line in (tmp_path / "trial" / "episodes.jsonl").read_text().splitlines()]
    found = {row["policy"]: (row["outcome"], row["judged"]) for row in rows if row["outcome"] != "begun"}
    assert found == {
        "quartz": ("timeout", {"task": False, "classifier": False}),
        "basalt": ("success", {"task": False, "classifier": True}),
        "gypsum": ("stopped", {}),
    }
    code, shown = on_a_terminal(tmp_path, "trial", "judge", tmp_path / "trial")
    assert code == 0 and all(name in shown for name in parts), "the verdict names them"
