"""Goals on the command line: trained, evaluated by sets and by the expert, exported; what is refused in one line."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from hardware.node_parameters import PolicyParameters
from policies.storage.loading import stated_by
from policies.wrappers.goals import EpisodeGoals, load_goals, save_goals
from policies.wrappers.prompted import PromptedPolicy
from robolearn.cli.main import main
from robolearn.core import BadInput
from robolearn.deploy.nodes import load


def run(*args: Any) -> int:
    return main([str(arg) for arg in args])


def result(capsys: pytest.CaptureFixture, *args: Any) -> dict[str, Any]:
    capsys.readouterr()
    assert run(*args, "--json") == 0
    return json.loads(capsys.readouterr().out.splitlines()[-1])


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("goals")


@pytest.fixture(scope="module")
def shown(folder: Path) -> Path:
    asked = ("--task", "lift_to", "--quality", "expert", "--episodes", 6, "--worlds", 6)
    assert run("collect", *asked, "--out", folder / "demos", "--json") == 0
    return folder / "demos"


@pytest.fixture(scope="module")
def aimed(folder: Path, shown: Path) -> Path:
    asked = (
        "--observe",
        "proprio",
        "objects",
        "--goal",
        "objects",
        "--hindsight",
        "later",
        "--steps",
        60,
        "--batch",
        64,
    )
    assert run("train", "--data", shown, *asked, "--out", folder / "aimed", "--json") == 0
    return folder / "aimed"


@pytest.mark.long
def test_a_run_says_what_its_goal_is(aimed: Path) -> None:
    config = json.loads((aimed / "policy" / "config.json").read_text())
    assert list(config["interface"]["observation"]) == ["proprio", "objects", "goal.objects"]
    assert "target" not in config["interface"]["observation"]
    assert config["settings"]["goal_dropout"] == 0.1 and config["settings"]["guidance"] == 1.0
    assert json.loads((aimed / "config.json").read_text())["imitation"]["hindsight"] == "later"


@pytest.mark.long
def test_the_goals_of_an_evaluation_reach_the_policy(
    aimed: Path, shown: Path, capsys: pytest.CaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The expert's are where the cube of each episode is to come; a set's are ends of its demonstrations."""
    seen: list[dict[str, np.ndarray]] = []
    told = PromptedPolicy.seen

    def spy(self: PromptedPolicy, observation: Any) -> Any:
        seen.append({k: np.array(v) for k, v in told(self, observation).items()})
        return seen[-1]

    monkeypatch.setattr(PromptedPolicy, "seen", spy)
    asked = ("evaluate", "--policy", aimed, "--task", "lift_to", "--episodes", 8, "--worlds", 4)
    found = result(capsys, *asked, "--goals", "expert", "--denoise-steps", 2, "--guidance", 2)
    assert found["goals"] == {"from": "expert", "choice": "nearest"} and found["success"]["episodes"] == 8
    running = seen[: len(seen) // 2]  # later ones are of worlds whose quota is met
    for observation in running:
        assert np.abs(observation["goal.objects"][:, :3] - observation["target"]).max() < 0.02
    assert len(np.unique(np.concatenate([o["target"][:, 0] for o in seen]))) >= 8
    ends: set[float] = set()
    for choice in ("nearest", "drawn"):
        seen.clear()
        found = result(capsys, *asked, "--goals", shown, "--goal-choice", choice)
        assert found["goals"] == {"from": str(shown), "choice": choice}
        wrong = np.abs(seen[0]["goal.objects"][:, :3] - seen[0]["target"]).max()
        assert wrong > 0.02
        ends |= {float(x) for o in seen for x in o["goal.objects"][:, 0]}
    assert 2 <= len(ends) <= 6


@pytest.mark.long
def test_one_policy_sampled_in_two_ways_is_compared_on_equal_starts_and_goals(
    aimed: Path, capsys: pytest.CaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    acted: dict[int, np.ndarray] = {}  # policy → its first chunks
    act = PromptedPolicy.act

    def spy(self: PromptedPolicy, observation: Any) -> Any:
        chunk = act(self, observation)
        acted.setdefault(id(self), chunk)
        return chunk

    monkeypatch.setattr(PromptedPolicy, "act", spy)
    asked = ("evaluate", "--policy", aimed, "--against", aimed, "--task", "lift_to", "--goals", "expert")
    result(capsys, *asked, "--episodes", 3, "--denoise-steps", 4, "--guidance", 1)
    np.testing.assert_array_equal(*acted.values())
    acted.clear()
    result(capsys, *asked, "--episodes", 3, "--denoise-steps", 1)
    first, second = acted.values()
    assert first.shape == second.shape == (3, 4, 7) and np.abs(first - second).max() > 0.01


def test_goals_for_an_arm_are_a_file_of_episodes(tmp_path: Path, aimed: Path, shown: Path) -> None:
    interface = stated_by(aimed)
    goals = EpisodeGoals({"goal.objects": np.arange(36, dtype=np.float32).reshape(1, 3, 12)})
    save_goals(goals, tmp_path / "goals.safetensors")
    np.testing.assert_array_equal(load_goals(tmp_path / "goals.safetensors", interface).ends["goal.objects"],
                                  goals.ends["goal.objects"])  # fmt: skip
    policy = load(
        PolicyParameters(
            policy=str(aimed), device="cpu", goals=str(tmp_path / "goals.safetensors"), denoise_steps=2, guidance=1.5
        )
    )
    assert isinstance(policy, PromptedPolicy)
    assert (policy.policy.net.config.steps, policy.policy.net.config.guidance) == (2, 1.5)  # type: ignore[attr-defined]
    policy.reset(0)
    seen = {key: np.zeros((1, *spec.shape), np.float32) for key, spec in policy.interface.observation.items()}
    for episode in (0, 1, 2, 2):  # beyond the last one it stays
        assert policy.seen(seen)["goal.objects"][0, 0] == 12 * episode
        policy.begin(np.ones(1, bool))
    with pytest.raises(BadInput, match=r"--goals: missing; expected what gives goal\.objects"):
        load(PolicyParameters(policy=str(aimed), device="cpu"))
    load(PolicyParameters(policy=str(aimed), device="cpu", goals=str(shown)))
    for content, says in ((b"nothing", "unreadable"), (b"", "unreadable")):
        (tmp_path / "bad.safetensors").write_bytes(content)
        with pytest.raises(BadInput, match=says):
            load_goals(tmp_path / "bad.safetensors", interface)
    save_goals(EpisodeGoals({"goal.proprio": np.zeros((1, 1, 2), np.float32)}), tmp_path / "other.safetensors")
    with pytest.raises(BadInput, match=r"goal\.proprio.*expected.*goal\.objects"):
        load_goals(tmp_path / "other.safetensors", interface)


@pytest.mark.long
def test_bad_input_is_one_line(
    aimed: Path, shown: Path, bc: Path, tmp_path: Path, capsys: pytest.CaptureFixture
) -> None:
    on = ("evaluate", "--policy", aimed, "--task", "lift_to", "--episodes", 2)
    train = ("train", "--data", shown, "--out", tmp_path / "new", "--steps", 1)
    for args, says in (
        (on, "--goals: missing; expected what gives goal.objects. --goals DATASET has ends of demonstrations"),
        ((*on, "--goals", tmp_path / "no"), "there is no such folder"),
        ((*on, "--goals", "expert", "--goal-choice", "drawn"), "--goal-choice: got drawn of the expert's own ends"),
        ((*on, "--goals", "expert", "--guidance", "-1"), "--guidance: got -1.0, expected 0 to 100"),
        ((*on, "--goals", "expert", "--denoise-steps", "0"), "K, Tp, Ta, To: got (0,"),
        (
            ("evaluate", "--policy", bc, "--episodes", 2, "--goals", shown),
            "got some, expected none: it was trained without",
        ),
        (
            ("evaluate", "--policy", bc, "--episodes", 2, "--goal-choice", "drawn"),
            "--goal-choice: got drawn of no goals",
        ),
        (
            ("evaluate", "--policy", bc, "--episodes", 2, "--guidance", "2"),
            "--guidance: got 2 of a policy without a goal",
        ),
        (("deploy", "--policy", aimed, "--task", "lift_to"), "--goals: missing; expected what gives goal.objects"),
        (("deploy", "--policy", bc, "--goals", "expert"), "got some, expected none: it was trained without a goal"),
        (("deploy", "--policy", bc, "--goals", shown), "got some, expected none: it was trained without a goal"),
        ((*train, "--goal", "object"), "got no 'object', expected what it has; available: proprio, objects, target"),
        ((*train, "--guidance", "2"), "--guidance: got 2 of a policy without a goal, expected 1"),
        ((*train, "--goal", "objects", "--flow", "shortcut", "--guidance", "2"), "got 2 of a shortcut model"),
        ((*train, "--goal", "objects", "--goal-dropout", "0", "--guidance", "2"), "never went without its goal"),
        ((*train, "--goal", "objects", "--eval-task", "lift_to"), "--eval-task: got lift_to for a policy with a goal"),
        (
            ("finetune", "--policy", aimed, "--task", "lift_to", "--out", tmp_path / "new"),
            "got one with a goal",
        ),
        (
            ("distill", "--teacher", aimed, "--task", "lift_to", "--out", tmp_path / "new"),
            "got one that is told goal.objects",
        ),
    ):
        capsys.readouterr()
        assert run(*args) == 2, args
        err = capsys.readouterr().err.splitlines()
        assert says in err[-1] and sum("error" in line for line in err) == 1, (args, err)
    assert not (tmp_path / "new").exists()
