"""Commands over a suite of tasks, such as metaworld:MT10."""

from __future__ import annotations

import importlib
import json
import math
import re
import sys
from dataclasses import dataclass, replace
from pathlib import Path

import pytest
from scipy.stats import beta

from robolearn.cli.evaluator import side_by_side
from robolearn.cli.finetune_numbers import last_success_of_tasks
from robolearn.cli.main import main
from robolearn.cli.suite import run_suite
from robolearn.core import ArraySpec, BadInput
from robolearn.core.specs import PROMPT
from robolearn.data import Dataset
from robolearn.eval import Success, over_tasks
from sim.registry import FAMILIES, WorldConfig, tasks_of

SIM = Path(__file__).parents[1] / "sim"
sys.path[:0] = [str(SIM), str(Path(__file__).parent)]
PAIR = ("stand_in:near", "stand_in:wide")


@pytest.fixture
def python(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """An interpreter for a family of two tasks, stand_in:both."""
    monkeypatch.chdir(SIM)
    family = replace(FAMILIES["metaworld"], far="far_stand_in", suites={"both": ("near", "wide")})
    monkeypatch.setitem(FAMILIES, "stand_in", family)
    return importlib.import_module("lent_python").make(tmp_path / "theirs")


def test_a_suite_is_the_name_of_its_tasks() -> None:
    assert len(tasks_of("metaworld:MT10")) == 10 and tasks_of("metaworld:MT10")[7] == "metaworld:peg-insert-side-v3"
    assert tasks_of("libero:libero_goal")[-1] == "libero:libero_goal/9"
    for one in ("lift", "metaworld:reach-v3", "metaworld:MT11", "nobody:MT10"):
        assert tasks_of(one) == (one,)


def test_worlds_show_lists_the_suites_of_a_family(tmp_path: Path, monkeypatch, capsys) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert main(["worlds", "show", "libero"]) == 0
    assert re.search(r"^suites +libero_spatial, libero_object, libero_goal, libero_10$", capsys.readouterr().out, re.M)
    assert main(["worlds", "show", "metaworld:MT10"]) == 2
    err = capsys.readouterr().err
    assert "got a suite of 10" in err and "metaworld:push-v3" in err and err.count("\n") == 1


def test_where_one_task_is_wanted_a_suite_is_named_in_one_line(tmp_path: Path, capsys) -> None:
    with pytest.raises(BadInput, match=r"task metaworld:MT10: got a suite of 10, expected one of them, or a command"):
        WorldConfig("metaworld:MT10").build(1)
    assert main(["evaluate", "--policy", "x", "--task", "nobody:MT10"]) == 2
    assert main(["train", "--data", "x", "--out", str(tmp_path / "a"), "--eval-task", "metaworld:MT10"]) == 2
    err = capsys.readouterr().err
    assert "got a suite of 10" in err and len(err.splitlines()) == 2


def test_the_mean_over_tasks_counts_them_alike_with_its_interval() -> None:
    tasks = Success.of(9, 10), Success.of(30, 60)
    found = over_tasks(tasks)
    # Clopper-Pearson by the beta distribution; the distances to the bounds add up as independent errors do.
    low = [beta.ppf(0.025, 9, 2), beta.ppf(0.025, 30, 31)]
    high = [beta.ppf(0.975, 10, 1), beta.ppf(0.975, 31, 30)]
    assert found.rate == pytest.approx(0.7) and found.episodes == 70
    assert found.low == pytest.approx(0.7 - math.sqrt((0.9 - low[0]) ** 2 + (0.5 - low[1]) ** 2) / 2)
    assert found.high == pytest.approx(0.7 + math.sqrt((high[0] - 0.9) ** 2 + (high[1] - 0.5) ** 2) / 2)
    assert over_tasks(tasks[:1]) == tasks[0]
    with pytest.raises(BadInput, match="successes of tasks"):
        over_tasks([])


@dataclass(frozen=True)
class Fails:
    """A command that fails in the task wide."""

    world: WorldConfig

    def run(self) -> dict[str, int]:
        if self.world.task.endswith("wide"):
            raise BadInput("task wide", got="no world", expected="one")
        return {"solved": 3}


def test_where_a_task_of_a_suite_fails_the_results_before_it_are_said(monkeypatch, caplog) -> None:
    suites = {"three": ("near", "wide", "far")}
    monkeypatch.setitem(FAMILIES, "stand_in", replace(FAMILIES["metaworld"], suites=suites))
    with pytest.raises(BadInput, match="task wide"):
        run_suite(Fails(WorldConfig("stand_in:three")), lambda result: Success.of(result["solved"], 4))
    assert [line for line in caplog.messages if "before" in line] == [
        "finished before: stand_in:near, success 75.0% (19.4–99.4, 4 episodes)"
    ]


@pytest.mark.long
def test_collect_evaluate_and_finetune_take_all_tasks_of_a_suite(python: str, tmp_path: Path, capsys) -> None:
    world = ["--task", "stand_in:both", "--world-python", python, "--sim-threads", "1"]
    collect = ["collect", *world, "--quality", "expert", "--worlds", "2", "--out", str(tmp_path / "set")]
    assert main([*collect, "--episodes", "2", "--json"]) == 0
    made = json.loads(capsys.readouterr().out)
    assert [one["task"] for one in made["tasks"]] == list(PAIR)
    assert made["success"]["episodes"] == 4 and made["success"]["rate"] == 1.0
    assert main([*collect, "--episodes", "3", "--resume"]) == 0
    shown = capsys.readouterr().out
    assert re.search(r"stand_in:wide +100.0%", shown) and re.search(r"mean over tasks +100.0% .* 6 episodes", shown)
    assert f"--data {tmp_path / 'set'}/* --observe proprio objects prompt" in shown
    assert [len(Dataset.open(tmp_path / "set" / name).success) for name in ("near", "wide")] == [3, 3]

    with_one = WorldConfig(PAIR[0], world_python=Path(python)).build(1)
    policy = importlib.import_module("untrained").make_policy(tmp_path / "policy", with_one.interface)
    with_one.close()
    evaluate = ["evaluate", "--policy", str(policy), "--against", f"episode:{tmp_path / 'set/near'}#0", *world]
    assert main([*evaluate, "--episodes", "2", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    for whole, parts in ((found, found["tasks"]), (found["against"], [one["against"] for one in found["tasks"]])):
        assert whole["success"]["rate"] == pytest.approx(sum(one["success"]["rate"] for one in parts) / 2)
    tune = ["finetune", "--policy", str(policy), *world, "--algo", "rlpd", "--worlds", "2", "--env-steps", "80"]
    assert main([*tune, "--eval-episodes", "2", "--out", str(tmp_path / "tuned"), "--json"]) == 0
    tuned = json.loads(capsys.readouterr().out)
    assert [one["policy"] for one in tuned["tasks"]] == [str(tmp_path / f"tuned/{n}/policy") for n in ("near", "wide")]
    rates = [one["evaluation"]["success"]["rate"] for one in tuned["tasks"]]
    assert tuned["success"]["rate"] == pytest.approx(sum(rates) / 2) and tuned["success"]["episodes"] == 4


def test_the_tasks_of_the_last_rollouts_begin_with_the_least(tmp_path: Path) -> None:
    rows: list[dict[str, float | None]] = [{"success": 0.5, "success/a": 1.0, "success/b": 0.0}]
    rows += [{"success": 0.5, "success/a": rate, "success/b": 0.9} for rate in (0.1, 0.2, None, 0.3, 0.4, 0.5)]
    (tmp_path / "metrics.jsonl").write_text(
        "".join(json.dumps({"step": i, **row}) + "\n" for i, row in enumerate(rows))
    )
    found = last_success_of_tasks(tmp_path)
    assert list(found) == ["a", "b"] and found == pytest.approx({"a": 0.3, "b": 0.9})
    (tmp_path / "metrics.jsonl").write_text(json.dumps({"step": 0, "success": 0.5}) + "\n")
    assert last_success_of_tasks(tmp_path) == {}


@pytest.mark.parametrize("tasks", [1, 2, 7, 10])
def test_tasks_that_are_judged_together_count_alike(tasks: int) -> None:
    for each in (1, 3, 10, 97, 100):
        worlds = side_by_side(tasks, tasks * each)
        assert worlds == min(64, each) if tasks == 1 else worlds % tasks == 0 and (tasks * each) % worlds == 0
    assert side_by_side(10, 100) == 50 and side_by_side(10, 970) == 10 and side_by_side(100, 100) == 100


@pytest.mark.long
def test_a_policy_of_words_learns_all_tasks_of_a_suite_at_once(python: str, tmp_path: Path, capsys) -> None:
    world = ["--task", "stand_in:both", "--world-python", python, "--sim-threads", "1"]
    with_one = WorldConfig(PAIR[0], world_python=Path(python)).build(1)
    offered, sentence = with_one.interface, with_one.prompt
    with_one.close()
    seen = {**offered.observation, PROMPT: ArraySpec((4,))}
    interface = replace(offered, observation=seen, extra={"words": {sentence: [1.0, 0.0, 0.0, 0.0]}})
    policy = importlib.import_module("untrained").make_policy(tmp_path / "policy", interface)
    tune = ["finetune", "--policy", str(policy), *world, "--env-steps", "2000", "--chunks-per-rollout", "2"]
    out = ["--eval-episodes", "4", "--out", str(tmp_path / "tuned"), "--json"]
    assert main([*tune, "--worlds", "4", *out]) == 0
    tuned = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert "suite" not in tuned and tuned["policy"] == str(tmp_path / "tuned/policy")
    assert tuned["evaluation"]["success"]["episodes"] == 4
    assert set(tuned["training_success_of_tasks"]) == set(PAIR)
    evaluate = ["evaluate", "--policy", tuned["policy"], *world, "--episodes", "2", "--json"]
    assert main(evaluate) == 0
    found = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert [one["task"] for one in found["tasks"]] == list(PAIR)
    refused = {
        ("--worlds", "1", "--eval-episodes", "4"): "worlds: got 1, expected at least 2",
        ("--data", "x"): "--data: got it with stand_in:both and a policy of words",
        ("--eval-episodes", "3"): "--eval-episodes: got 3, expected a multiple of 2",
    }
    for flags, said in refused.items():
        assert main([*tune, *flags, "--out", str(tmp_path / "no")]) == 2
        assert said in capsys.readouterr().err and not (tmp_path / "no").exists()
