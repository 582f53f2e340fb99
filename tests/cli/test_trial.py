"""``robolearn trial``: plan, run, kill, go on, judge, and what is refused."""

from __future__ import annotations

import contextlib
import io
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest
import yaml

sys.path.insert(0, str(Path(__file__).parent))
from running import PROGRAM, ROOT, WAIT_S, Running
from untrained import make_constant

from hardware.ros2.process import wait_until
from robolearn.cli.main import main
from robolearn.cli.trial_episodes import ArmEpisodes, TrialOperator, start_of
from robolearn.cli.trial_hashes import changed, code_of_module, hashes_of
from robolearn.cli.trial_starts import TrialStarts, read_start
from robolearn.core import RobolearnError
from robolearn.eval.trials.analysis import FUTILE
from robolearn.eval.trials.plan import TrialCheckpoint, TrialPlan
from robolearn.eval.trials.records import TrialRecords, read_episodes
from robots.stations import CONTRACTS, load_contract
from sim.registry import make_env
from sim.tasks import TASKS


def run(*args: Any) -> int:
    return main([str(arg) for arg in args])


def lines(folder: Path) -> list[dict[str, Any]]:
    """The stored episodes without their beginnings, and without the moments at which they ended."""
    rows = [json.loads(line) for line in (folder / "episodes.jsonl").read_text().splitlines()]
    return [{key: value for key, value in row.items() if key != "at"} for row in rows if row["outcome"] != "begun"]


def one_line(text: str) -> str:
    return " ".join(text.split())


@pytest.fixture
def trial(bc: Path, tmp_path: Path) -> Path:
    """The plan of a trial of three policies, one of them with two trainings; of its own, which may be spoiled."""
    interface: Any = make_env("lift", 1, threads=1).interface  # type: ignore[attr-defined]
    shutil.copytree(bc, tmp_path / "bc")
    make_constant(tmp_path / "still", interface)
    make_constant(tmp_path / "up", interface, dz=-0.5)
    policies = (f"{name}={tmp_path / name}" for name in ("bc", "still"))
    flags = ("--policies", *policies, f"up={tmp_path / 'up'},{tmp_path / 'still'}", "--task", "lift", "--blocks", 4)
    assert run("trial", "plan", *flags, "--out", tmp_path / "trial", "--json") == 0
    return tmp_path / "trial"


def test_a_plan_is_interleaved_in_blocks_with_one_start_each(trial: Path):
    plan = TrialPlan.read(trial)
    slots = [plan.slot(i) for i in range(plan.episodes)]
    assert len(slots) == 12
    for block in range(4):
        of_block = slots[3 * block : 3 * block + 3]
        assert {slot.policy for slot in of_block} == {"bc", "still", "up"}
        assert {(slot.block, slot.start) for slot in of_block} == {(block, 2000 + block)}
    assert [slot.checkpoint for slot in slots if slot.policy == "up"] == [0, 1, 0, 1]
    orders = [[plan.slot(3 * block + i).policy for i in range(3)] for block in range(400)]
    firsts = np.unique([order[0] for order in orders], return_counts=True)[1]
    assert len({tuple(order) for order in orders}) == 6 and firsts.min() > 100  # of 400, 133 of each expected


def within_an_episode(process: subprocess.Popen, stored: Path) -> bool:
    """True where the process, which is then halted, is within an episode by its records."""
    process.send_signal(signal.SIGSTOP)
    if json.loads(stored.read_bytes().splitlines()[-1])["outcome"] == "begun":
        return True
    process.send_signal(signal.SIGCONT)
    return False


def test_a_trial_of_before_beginnings_were_stored_opens_as_it_did(trial: Path):
    plan = TrialPlan.read(trial)
    with TrialRecords(trial, plan) as records:
        records.add("abandoned", reason="Ctrl-C")
        records.add("success")
        records.add("timeout")
    done, abandoned = read_episodes(trial, plan)
    assert [one.outcome for one in done] == ["success", "timeout"] and [one.reason for one in abandoned] == ["Ctrl-C"]


def test_each_try_that_was_begun_and_not_ended_is_listed(trial: Path):
    plan = TrialPlan.read(trial)
    for _ in range(2):
        with TrialRecords(trial, plan) as records:
            records.begin()
            records.add("success")
            records.begin()  # and a kill
    with TrialRecords(trial, plan) as records:
        records.begin()
        records.add("abandoned", reason="Ctrl-C")
    done, abandoned = read_episodes(trial, plan)
    assert [one.number for one in done] == [0, 1]
    assert [(one.number, one.reason.partition(",")[0]) for one in abandoned] == [
        (1, "begun"), (2, "begun"), (2, "Ctrl-C")
    ]  # fmt: skip


@pytest.mark.long
def test_a_killed_trial_goes_on_as_if_nothing_had_been(trial: Path, capsys: pytest.CaptureFixture):
    whole = trial.parent / "whole"
    shutil.copytree(trial, whole)
    env = {**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
    process = subprocess.Popen([*PROGRAM, "trial", "run", str(trial), "--json"], env=env, stderr=subprocess.PIPE)
    stored = trial / "episodes.jsonl"
    while not stored.exists() or stored.read_bytes().count(b"\n") < 4 or not within_an_episode(process, stored):
        assert process.poll() is None, process.communicate()
        time.sleep(0.002)
    process.send_signal(signal.SIGKILL)
    process.communicate()
    done = len(lines(trial))
    assert 2 <= done < 12
    with stored.open("ab") as file:
        file.write(b'{"plan": "cut sho')  # a kill within a line
    assert run("trial", "run", trial, "--json") == 0
    found = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert found["episodes"] == 12 - done and found["done"] == 12 and found["ended"]
    assert run("trial", "judge", trial, "--out", whole.parent / "page", "--json") == 0  # the kill left its trace
    (repeated,) = json.loads(capsys.readouterr().out.splitlines()[-1])["abandoned"]
    assert repeated.startswith(f"episode {done + 1}: begun, and not ended, at 20")
    assert repeated in (whole.parent / "page" / "report.html").read_text()
    assert run("trial", "run", whole, "--episodes", 5) == 0
    out = capsys.readouterr().out
    assert "5 of at most 12 episodes" in out and "success" not in out and "bc" not in out  # it is blind
    assert run("trial", "run", whole) == 0
    assert lines(trial) == lines(whole)
    assert run("trial", "run", trial, "--json") == 0  # it is over
    assert json.loads(capsys.readouterr().out.splitlines()[-1])["episodes"] == 0


@pytest.mark.long
def test_the_verdict_names_what_was_compared(trial: Path, tmp_path: Path, capsys: pytest.CaptureFixture):
    assert run("trial", "judge", trial) == 2
    assert "a finished block" in capsys.readouterr().err
    assert run("trial", "run", trial) == 0
    capsys.readouterr()
    assert run("trial", "judge", trial, "--out", tmp_path / "page", "--json") == 0
    found = json.loads(capsys.readouterr().out.splitlines()[-1])
    plan = TrialPlan.read(trial)
    assert found["plan"] == plan.sha256 and found["blocks"] == 4 and found["ended"] == "all blocks are done"
    assert {"software", "world", "robots", f"policy {tmp_path / 'bc'}"} <= found["hashes"].keys()
    assert found["policies"]["still"]["outcomes"] == {"timeout": 4} and found["policies"]["up"]["seeds"]
    assert len(found["verdicts"]) == 3 and {v["comparisons"] for v in found["verdicts"]} == {3}
    page = (tmp_path / "page" / "report.html").read_text()
    assert plan.sha256 in page and "Evidence" in page and "timeout" in page
    assert run("trial", "judge", trial) == 0
    assert "No policy can be called the best of 3" in capsys.readouterr().out
    assert run("trial", "plan", "--policies", f"a={tmp_path / 'up'}", f"b={tmp_path / 'still'}", "--out", trial) == 2


@pytest.mark.long
def test_a_trial_in_which_nothing_could_be_found_any_more_ends_and_may_go_on(
    tmp_path: Path, capsys: pytest.CaptureFixture
):
    interface: Any = make_env("lift", 1, threads=1).interface  # type: ignore[attr-defined]
    make_constant(tmp_path / "still", interface)
    make_constant(tmp_path / "up", interface, dz=-0.5)
    flags = ("--policies", f"a={tmp_path / 'up'}", f"b={tmp_path / 'still'}", "--task", "lift", "--detect", 0.2, 0.95)
    assert run("trial", "plan", *flags, "--power", 0.8, "--out", tmp_path / "trial") == 0
    out = one_line(capsys.readouterr().out)
    assert "futility the trial ends where a difference of that size is found with less than 10%" in out
    plan = TrialPlan.read(tmp_path / "trial")
    assert plan.futility is not None and (plan.futility.rates, plan.futility.below) == ((0.2, 0.95), 0.1)
    assert run("trial", "run", tmp_path / "trial") == 0  # neither ever succeeds
    out = one_line(capsys.readouterr().out)
    assert "ended no difference that this plan could still find" in out and "trial judge" in out
    done = len(lines(tmp_path / "trial"))
    assert done % 2 == 0 and done < plan.episodes - 2
    assert run("trial", "judge", tmp_path / "trial") == 0
    out = one_line(capsys.readouterr().out)
    assert "inconclusive no difference that this plan could still find, with a chance of " in out
    assert "b minus a +0.0 percentage points, 95% interval" in out
    assert run("trial", "run", tmp_path / "trial", "--json") == 0
    found = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert (found["episodes"], found["ended"], found["reason"]) == (0, True, FUTILE)
    assert run("trial", "run", tmp_path / "trial", "--past-futility", "--episodes", 2, "--json") == 0
    found = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert (found["episodes"], found["ended"], found["reason"]) == (2, False, None)
    assert run("trial", "judge", tmp_path / "trial", "--json") == 0
    found = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert (found["ended"], found["conclusion"]) == (FUTILE, "inconclusive")
    assert found["conditional_power"] < found["futility"]["below"] == 0.1


@pytest.mark.long
@pytest.mark.parametrize("command", ["run", "judge"])
@pytest.mark.parametrize("spoiled", ["weights", "world", "plan", "order", "dropped", "foreign"])
def test_what_has_changed_is_refused(
    spoiled: str, command: str, trial: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture
):
    assert run("trial", "run", trial, "--episodes", 6, "--json") == 0
    plan, stored = trial / "plan.json", trial / "episodes.jsonl"
    rows = stored.read_text().splitlines(keepends=True)
    if spoiled == "weights":
        weights = trial.parent / "bc" / "policy" / "model.safetensors"
        weights.write_bytes(weights.read_bytes()[:-1] + b"\0")
        expected = f"policy {trial.parent / 'bc'} has changed"
    elif spoiled == "plan":
        plan.write_text(plan.read_text().replace('"alpha": 0.05', '"alpha": 0.5'))
        expected = "a plan whose hash is"
    elif spoiled == "order":
        stored.write_text("".join([*rows[2:4], *rows[:2], *rows[4:]]))
        expected = "line 1: got episode 1"
    elif spoiled == "dropped":
        stored.write_text("".join([*rows[:4], *rows[6:]]))
        expected = "line 5: got episode 3"
    elif spoiled == "world":
        monkeypatch.setattr(TASKS["lift"], "__module__", "models")  # as that of a plug-in
        expected = "world has changed"
    else:
        whole = TrialPlan.read(trial)
        plan.unlink()
        replace(whole, seed=7).write(trial)
        expected = "line 1: got episode 0 of plan"
    capsys.readouterr()
    if command == "judge" and spoiled in ("weights", "world"):  # what is on disk was recorded before
        assert run("trial", command, trial) == 0
        assert f"since the plan: {expected.removesuffix(' has changed')}; this is" in one_line(capsys.readouterr().out)
        return
    assert run("trial", command, trial) == 2
    err = capsys.readouterr().err
    assert expected in err and err.count("\n") == 1


@pytest.mark.long
def test_episodes_are_judged_though_libraries_have_changed_and_a_policy_is_gone(
    trial: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture
):
    assert run("trial", "run", trial, "--episodes", 6, "--json") == 0
    monkeypatch.setattr("robolearn.cli.trial_hashes.LIBRARIES", ("mujoco",))
    shutil.rmtree(tmp_path / "up")
    capsys.readouterr()
    assert run("trial", "judge", trial, "--out", tmp_path / "page", "--json") == 0
    found = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert set(found["changed"]) == {"software", "arm", f"policy {tmp_path / 'up'}"} and found["blocks"] == 2
    assert "Changed since the plan: " in (tmp_path / "page" / "report.html").read_text()
    assert run("trial", "run", trial) == 2
    assert "got nothing that can be read" in capsys.readouterr().err


@pytest.mark.long
def test_what_the_worlds_are_made_of_is_the_plans(
    bc: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture
):
    """Dynamics and contracts by path, a model of one's own, and a task of a plug-in."""
    interface: Any = make_env("lift", 1, threads=1).interface  # type: ignore[attr-defined]
    make_constant(tmp_path / "still", interface)
    dynamics, contract = tmp_path / "dynamics.yaml", tmp_path / "station.yaml"
    dynamics.write_text("parameters: {gain: 0.9}\n")
    shipped = (ROOT / "robots" / "stations" / "sim.yaml").read_text()
    contract.write_text(shipped.replace(
        "    frame: front", "    pose: {parent: base, position: [1, 0, 1]}\n    frame: front"
    ))  # fmt: skip
    policies = ("--policies", f"a={bc}", f"b={tmp_path / 'still'}", "--blocks", 1)
    (tmp_path / "own_judge.py").write_text("class Model:\n    def __init__(self, interface): pass\n"
                                        "    def score(self, windows, prompts): return []\n")  # fmt: skip
    monkeypatch.syspath_prepend(tmp_path)
    flags = ("--dynamics", dynamics, "--station", contract, "--classifier", "own_judge:Model")
    assert run("trial", "plan", *policies, *flags, "--out", tmp_path / "trial") == 0
    plan = TrialPlan.read(tmp_path / "trial")
    assert changed(plan) == {}
    for name, file, old, new in (
        ("dynamics", dynamics, "0.9", "0.8"),
        ("contract", contract, "control_hz", "# control_hz"),
        ("classifier", tmp_path / "own_judge.py", "pass", "..."),
    ):
        before = file.read_text()
        file.write_text(before.replace(old, new, 1))
        assert list(changed(plan)) == [name] and plan.hashes[name] != changed(plan)[name]
        capsys.readouterr()
        assert run("trial", "run", tmp_path / "trial") == 2
        assert f"trial: {name} has changed" in capsys.readouterr().err
        file.write_text(before)
    monkeypatch.setattr(TASKS["lift"], "__module__", "own_judge")
    assert list(changed(plan)) == ["world"]


def arm_of_ones_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[Path, TrialPlan]:
    """The folder of an arm that is a panda by another name, and the plan of a trial on it."""
    import robots

    folder = tmp_path / "mine"
    shutil.copytree(ROOT / "robots" / "panda", folder)
    (folder / "panda.xml").rename(folder / "model.xml")
    (folder / "robot.yaml").write_text("acceleration: 5\n")
    (folder / "station.yaml").write_text(
        (ROOT / "robots" / "stations" / "sim.yaml").read_text().replace("robot: panda", "robot: mine")
    )
    mine = replace(robots.PANDA, name="mine", mjcf=folder / "model.xml")
    monkeypatch.setitem(robots.ROBOTS.data, "mine", mine)
    setting = {"task": "lift", "rehearse": False, "seconds": 30.0}
    plan = TrialPlan(policies={}, arm=str(folder / "station.yaml"), setting=setting, outcome="task", classifier="",
                     blocks=1, concentration=1, alpha=0.05, seed=0, hashes={})  # fmt: skip
    return folder, replace(plan, hashes=hashes_of(plan))


def test_an_arm_and_its_station_are_the_plans(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    folder, plan = arm_of_ones_own(tmp_path, monkeypatch)
    assert changed(plan) == {}
    (folder / "versions" / "1").mkdir(parents=True)
    (folder / "versions" / "1" / "station.yaml").write_text("kept")
    assert changed(plan) == {}
    for file, names in (
        ("robot.yaml", {"arm", "station"}),
        ("model.xml", {"arm", "station"}),
        ("dynamics.json", {"arm", "station"}),
        ("station.yaml", {"arm", "station", "contract"}),
    ):
        before = (folder / file).read_text() if (folder / file).exists() else ""
        (folder / file).write_text(f"{before}\n")
        assert changed(plan).keys() == names, file
        (folder / file).write_text(before)
        if not before:
            (folder / file).unlink()


def test_two_arms_and_their_contracts_are_the_plans(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """The left arm is a panda by another name; its contract is beside the station's."""
    import robots

    folder, plan = arm_of_ones_own(tmp_path, monkeypatch)
    mine = robots.ROBOTS["mine"]
    pair = replace(robots.PAIRS["panda_pair"], name="two", parts=(
        replace(robots.PAIRS["panda_pair"].parts[0], robot=mine), robots.PAIRS["panda_pair"].parts[1]
    ))  # fmt: skip
    monkeypatch.setitem(robots.PAIRS, "two", pair)
    arms = f"{{left: {{contract: {folder}}}, right: {{contract: sim}}}}"
    station = tmp_path / "pair.yaml"
    station.write_text(f"robot: two\narms: {arms}\n")
    plan = replace(plan, arm=str(station), setting={**plan.setting, "task": "lift_two"}, hashes={})
    plan = replace(plan, hashes=hashes_of(plan))
    assert changed(plan) == {}
    for file, names in (
        (folder / "model.xml", {"arm", "station"}),
        (folder / "station.yaml", {"arm", "station", "contract"}),
        (station, {"contract"}),
    ):
        before = file.read_text()
        file.write_text(f"{before}\n")
        assert changed(plan).keys() == names, file
        file.write_text(before)


@pytest.mark.parametrize(
    ("name", "folder"),
    [
        ("filter", "hardware/observing"),
        ("filter", "hardware/ros2"),
        ("filter", "hardware/safety"),
        ("filter", "robots"),
        ("deployment", "robolearn/deploy"),
        ("deployment", "launch"),
        ("policy code", "policies"),
        ("world", "sim"),
    ],
)
def test_the_code_between_a_policy_and_an_arm_is_the_plans(
    name: str, folder: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    for one in ("hardware", "robots", "robolearn/deploy", "robolearn/bench/emulators", "launch", "policies", "sim"):
        shutil.copytree(ROOT / one, tmp_path / "top" / one, ignore=shutil.ignore_patterns("__pycache__"))
    monkeypatch.setattr("robolearn.cli.trial_hashes.TOP", tmp_path / "top")
    _, plan = arm_of_ones_own(tmp_path, monkeypatch)
    assert changed(plan) == {}
    next((tmp_path / "top" / folder).glob("*.py")).write_text("")
    assert changed(plan).keys() == {name}


def test_the_module_of_an_environment_is_found_by_its_own_interpreter_too(tmp_path: Path, monkeypatch: Any):
    package = tmp_path / "lab"
    package.mkdir()
    (package / "__init__.py").write_text("")
    monkeypatch.chdir(tmp_path)
    found = code_of_module("lab.envs"), code_of_module("lab.envs", Path(sys.executable))
    (package / "envs.py").write_text("friction = 0.5\n")
    after = code_of_module("lab.envs"), code_of_module("lab.envs", Path(sys.executable))
    assert found[0] == found[1] != after[0] == after[1]


@pytest.mark.long
@pytest.mark.parametrize(
    ("flags", "expected"),
    [
        (("--policies", "a={bc}"), "two or more"),
        (("--policies", "a={bc}", "a={bc}"), "each name once"),
        (("--policies", "a={bc}", "{bc}"), "NAME=PATH"),
        (("--policies", "a={bc}", "b=nowhere"), "no such folder"),
        (("--policies", "a={bc}", "b={bc}", "--task", "nothing"), "task"),
        (("--policies", "a={bc}", "b={bc}", "--outcome", "person"), "available: task"),
        (("--policies", "a={bc}", "b={bc}", "--arm", "fr3"), "it was made for panda, this is fr3"),
        (("--policies", "a={bc}", "b={bc}", "--rehearse"), "--arm"),
        (("--policies", "a={bc}", "b={bc}", "--detect", "0.5", "0.5"), "rates to detect"),
        (("--policies", "a={bc}", "b={bc}", "--blocks", "0"), "--blocks"),
    ],
)
def test_a_plan_that_cannot_be_kept_is_refused(
    flags: tuple[str, ...], expected: str, bc: Path, tmp_path: Path, capsys: pytest.CaptureFixture
):
    words = [word.replace("{bc}", str(bc)) for word in flags]
    assert run("trial", "plan", *words, "--out", tmp_path / "trial") == 2
    err = capsys.readouterr().err
    assert expected in err and err.count("\n") == 1 and not (tmp_path / "trial").exists()


@pytest.mark.long
def test_a_classifier_judges_beside_the_task_or_in_its_place(
    trial: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture
):
    (tmp_path / "models.py").write_text(
        "import numpy as np\nfrom robolearn.core import Score\n\n\n"
        "class AtTheEnd:\n"
        "    def __init__(self, interface):\n        pass\n\n"
        "    def score(self, windows, prompts):\n"
        "        for w in windows:\n            assert all(len(v) == len(w) + 1 for v in w.observation.values())\n"
        "        ends = [np.arange(len(w)) == len(w) - 1 for w in windows]\n"
        "        return [Score(e.astype('f4'), e.astype('f4'), e, np.ones(len(e), 'f4')) for e in ends]\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    policies = ("--policies", f"up={tmp_path / 'up'}", f"still={tmp_path / 'still'}", "--blocks", 2)
    model = ("--reward", "models:AtTheEnd")
    for outcome, success in (("task", 0.0), ("classifier", 1.0)):
        folder = tmp_path / outcome
        assert run("trial", "plan", *policies, *model, "--outcome", outcome, "--out", folder) == 0
        assert run("trial", "run", folder) == 0
        capsys.readouterr()
        assert run("trial", "judge", folder, "--json") == 0
        found = json.loads(capsys.readouterr().out.splitlines()[-1])
        assert {one["success"]["rate"] for one in found["policies"].values()} == {success}
        assert all(row["judged"] == {"task": False, "classifier": True} for row in lines(folder))
        assert found["agreement"] == {"both": 0, "only": 0, "classifier": 4, "neither": 0, "kappa": 0.0}
    assert run("trial", "plan", *policies, "--outcome", "classifier", "--out", tmp_path / "none") == 2


def test_the_person_answers_by_a_key(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture):
    operator = TrialOperator(yes=True)
    monkeypatch.setattr(sys, "stdin", io.StringIO("?\ny\nn\nI\n"))
    assert operator.confirm_success() is True and not operator.helped
    assert operator.confirm_success() is False and not operator.helped
    assert operator.confirm_success() is False and operator.helped
    assert capsys.readouterr().err.count("Did it succeed?") == 4
    with pytest.raises(RobolearnError, match="not judged"):
        operator.confirm_success()


def test_the_person_is_told_the_start_and_never_the_policy(
    trial: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture
):
    plan, operator = TrialPlan.read(trial), TrialOperator(yes=False)
    monkeypatch.setattr(sys, "stdin", io.StringIO("yes\n"))
    capsys.readouterr()
    for number in (3, 4, 5, 6):
        operator.start = start_of(plan, plan.slot(number))
        assert operator.confirm_motion("fr3") is True
    err = capsys.readouterr().err
    assert re.findall(r"Episode (\d+) of at most 12, block (\d+): (?:a|the) (new|same) start", err) == [
        ("4", "2", "new"), ("5", "2", "same"), ("6", "2", "same"), ("7", "3", "new")
    ]  # fmt: skip
    assert not any(name in re.findall(r"\w+", err) for name in plan.policies)


def picture(value: int) -> np.ndarray:
    return np.full((6, 8, 3), (value, 0, 7), np.uint8)


class FakePage:
    """Keeps what it is to show: text, the start, and what the cameras saw at that moment."""

    made: ClassVar[list[FakePage]] = []

    def __init__(self) -> None:
        self.url, self.shown, self.open = "http://127.0.0.1:1/?token=x", [], True
        self.made.append(self)

    def show(self, text: str, then: dict[str, np.ndarray], now: Any) -> None:
        self.shown.append((text, {name: int(one[0, 0, 0]) for name, one in then.items()}, now()))

    def close(self) -> None:
        self.open = False


def test_a_start_is_kept_with_the_first_policy_of_a_block_and_shown_before_the_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture
):
    pytest.importorskip("viser")
    monkeypatch.setattr("hardware.teleop.browser.ghost.GhostPage", FakePage)
    monkeypatch.setattr(FakePage, "made", [])
    sees, feeds = {"front": picture(10), "left/wrist": picture(11)}, []

    @contextlib.contextmanager
    def feed():
        feeds.append("open")
        yield lambda: dict(sees)
        feeds.append("closed")

    def next_episode(block: int, first: bool) -> None:
        starts = TrialStarts(tmp_path, feed)
        try:
            operator = TrialOperator(True, starts)
            operator.start, operator.block, operator.first = f"block {block}", block, first
            assert operator.confirm_motion("fr3")
        finally:
            starts.close()

    next_episode(0, True)
    assert "open http://127.0.0.1:1/?token=x" in capsys.readouterr().err
    sees["front"] = picture(90)  # things lie elsewhere after the episode
    next_episode(0, False)
    next_episode(1, True)
    next_episode(1, False)
    sees["front"] = picture(120)
    del sees["left/wrist"]
    next_episode(1, True)  # repeated after a kill: placed anew
    next_episode(1, False)
    shown = [page.shown[0] for page in FakePage.made]
    assert [(text, then) for text, then, _ in shown] == [
        ("block 0", {}), ("block 0", {"front": 10, "left/wrist": 11}), ("block 1", {}),
        ("block 1", {"front": 90, "left/wrist": 11}), ("block 1", {}), ("block 1", {"front": 120}),
    ]  # fmt: skip
    assert shown[1][2]["front"][0, 0, 0] == 90, "beside what is seen now"
    assert all(page.shown[-1] == ("", {}, {}) and not page.open for page in FakePage.made)
    assert feeds == ["open", "closed"] * 6
    np.testing.assert_array_equal(read_start(tmp_path, 0)["left/wrist"], picture(11))
    np.testing.assert_array_equal(read_start(tmp_path, 0)["front"], picture(10))


def test_a_trial_goes_on_without_page_and_without_pictures(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
):
    monkeypatch.setitem(sys.modules, "hardware.teleop.browser.ghost", None)
    monkeypatch.setattr("robolearn.cli.trial_starts.WAIT_S", 0.0)
    (tmp_path / "starts").write_text("a file where a folder should be")
    starts = TrialStarts(tmp_path, lambda: contextlib.nullcontext(dict))
    operator = TrialOperator(True, starts)
    assert operator.confirm_motion("fr3") and operator.confirm_motion("fr3")
    starts.close()
    assert caplog.text.count("no page with the start to restore") == 1 and "are not kept" in caplog.text


@pytest.mark.parametrize(
    ("arm", "rehearse", "shown"),
    [("seeing", False, True), ("seeing", True, False), ("fr3", False, False), ("sim", False, False)],
)
def test_starts_are_shown_where_a_person_restores_them(
    arm: str, rehearse: bool, shown: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    if arm == "seeing":  # a real arm with a camera
        camera = {"topic": "camera/image_raw", "type": "sensor_msgs/msg/Image", "size": [84, 84], "max_age_s": 0.2}
        content = yaml.safe_load((CONTRACTS / "fr3.yaml").read_text()) | {"cameras": {"side": camera}}
        (tmp_path / "seeing.yaml").write_text(yaml.safe_dump(content))
        arm = str(tmp_path / "seeing.yaml")
    result = {"episode_s": [3.0], "ended": None, "stopped": False, "success": {"rate": 1.0}, "timed_out": [False]}
    operators: list[TrialOperator] = []

    def run_beside(_: Any, operator: TrialOperator) -> dict[str, Any]:
        operators.append(operator)
        return result

    monkeypatch.setattr("robolearn.cli.deploy.Deploy.run_beside", run_beside)
    monkeypatch.setattr("policies.storage.loading.check_policy", lambda *_, **__: None)
    monkeypatch.setattr("policies.storage.loading.needed_by", lambda _, **__: make_env("lift", 1, threads=1).interface)  # type: ignore[attr-defined]
    setting = {"task": "lift", "rehearse": rehearse, "seconds": 30.0}
    one = (TrialCheckpoint("runs/a", ""),)
    plan = TrialPlan(policies={"a": one, "b": one}, arm=arm, setting=setting, outcome="person" if shown else "task",
                     classifier="", blocks=2, concentration=1, alpha=0.05, seed=0, hashes={})  # fmt: skip
    episodes = ArmEpisodes(plan, {}, tmp_path)
    seen = []
    for number in range(4):
        episodes.run(plan.slot(number))
        seen.append((operators[-1].block, operators[-1].first))
    assert seen == [(0, True), (0, False), (1, True), (1, False)]
    assert {operator.starts is not None for operator in operators} == {shown}
    assert not (tmp_path / "starts").exists()
    episodes.close()


@pytest.mark.parametrize(
    ("arm", "rehearse", "success", "timed_out", "outcome"),
    [
        ("sim", False, 0.0, True, "timeout"),
        ("sim", False, 0.0, False, "failure"),
        ("sim", False, 1.0, False, "success"),
        ("fr3", True, 0.0, True, "timeout"),
        ("fr3", True, 0.0, False, "failure"),
        ("fr3", False, 0.0, True, "timeout"),
    ],
)
def test_a_clock_that_ends_an_episode_is_an_outcome_of_its_own_on_every_arm(
    arm: str, rehearse: bool, success: float, timed_out: bool, outcome: str, monkeypatch: pytest.MonkeyPatch
):
    result = {"episode_s": [3.0], "ended": None, "stopped": False, "success": {"rate": success},
              "timed_out": [timed_out]}  # fmt: skip
    monkeypatch.setattr("robolearn.cli.deploy.Deploy.run_beside", lambda *_: result)
    monkeypatch.setattr("policies.storage.loading.check_policy", lambda *_, **__: None)
    monkeypatch.setattr("policies.storage.loading.needed_by", lambda _, **__: make_env("lift", 1, threads=1).interface)  # type: ignore[attr-defined]
    setting = {"task": "lift", "rehearse": rehearse, "seconds": 30.0}
    one = (TrialCheckpoint("runs/a", ""),)
    plan = TrialPlan(policies={"a": one, "b": one}, arm=arm, setting=setting, outcome="task", classifier="",
                     blocks=1, concentration=1, alpha=0.05, seed=0, hashes={})  # fmt: skip
    assert ArmEpisodes(plan, {}).run(plan.slot(0)).outcome == outcome


def test_a_policy_of_lerobot_s_is_opened_once_for_all_checks_of_it(monkeypatch: pytest.MonkeyPatch):
    opened: list[str] = []

    class Foreign:
        interface = load_contract("sim").interface

        def bind(self, interface: Any) -> None:
            """Fits."""

    def open_policy(name: str) -> Foreign:
        opened.append(name)
        return Foreign()

    monkeypatch.setattr("policies.storage.loading.open_policy", open_policy)
    setting = {"task": "lift", "rehearse": False, "seconds": 30.0}
    policies = {name: (TrialCheckpoint(f"lerobot:{name}", ""),) for name in "ab"}
    ArmEpisodes(TrialPlan(policies=policies, arm="sim", setting=setting, outcome="task", classifier="", blocks=1,
                          concentration=1, alpha=0.05, seed=0, hashes={}), {})  # fmt: skip
    assert opened == ["lerobot:a", "lerobot:b"]


@pytest.mark.long
@pytest.mark.realtime
def test_stops_of_the_filter_and_dead_nodes_are_outcomes_on_the_arm(tmp_path: Path):
    """One policy stretches the arm until the filter stops it; the node of the third episode is killed."""
    interface: Any = make_env("lift", 1, threads=1).interface  # type: ignore[attr-defined]
    for name, dz in (("away", -1.0), ("still", 0.0)):
        make_constant(tmp_path / name, interface, dz=dz)
    policies = ("--policies", f"away={tmp_path / 'away'}", f"still={tmp_path / 'still'}")
    assert run("trial", "plan", *policies, "--arm", "sim", "--blocks", 2, "--out", tmp_path / "trial") == 0
    plan, domain = TrialPlan.read(tmp_path / "trial"), int(os.environ["ROS_DOMAIN_ID"]) + 3
    assert {"contract", "filter"} <= plan.hashes.keys()
    first = Running(tmp_path / "logs", "trial", "run", tmp_path / "trial", "--episodes", 2, domain=domain)
    code, _, err = first.end()
    assert code == 0, err
    outcomes = {row["policy"]: row for row in lines(tmp_path / "trial")}
    assert outcomes["away"]["outcome"] == "stopped" and "singularity" in outcomes["away"]["reason"]
    assert outcomes["still"]["outcome"] == "timeout" and outcomes["still"]["judged"] == {"task": False}
    second = Running(tmp_path / "logs", "trial", "run", tmp_path / "trial", "--episodes", 1, domain=domain)
    log = tmp_path / "logs" / "episode-3" / "safety.log"
    wait_until(lambda: log.exists() and "armed" in log.read_text(), WAIT_S, "an armed arm")
    os.kill(second.pid("policy"), signal.SIGKILL)
    code, _, err = second.end()
    row = lines(tmp_path / "trial")[2]
    assert (code, row["outcome"]) == (0, "died") and "the policy node was killed by SIGKILL" in row["reason"], err
