"""``robolearn evaluate --paired-with``: episodes of deployments once more in simulation."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import numpy as np
import pytest

sys.path.insert(0, str(Path(__file__).parent))

from untrained import make_constant

from robolearn.cli import evaluate
from robolearn.cli.main import main
from sim.registry import make_env

pytestmark = pytest.mark.long


@pytest.fixture
def policies(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[Path]:
    """Two policies that lift nothing, with the logs of a deployment each."""
    monkeypatch.chdir(tmp_path)
    interface = make_env("lift", 1).interface
    made = [make_constant(tmp_path / name, interface, gripper=grip) for name, grip in (("a", 1.0), ("b", -1.0))]
    for path, succeeded in zip(made, ([False, False, True], [False, False, False]), strict=True):
        log = Path(f"logs-{path.name}")
        log.mkdir()
        result = {"policy": str(path), "task": "lift", "arm": "panda", "seed": 7, "succeeded": succeeded}
        (log / "result.json").write_text(json.dumps(result))
    return made


def test_each_deployment_is_run_once_more(policies: list[Path], capsys: pytest.CaptureFixture) -> None:
    words = ["evaluate", "--policy", "a", "--paired-with", "logs-a", "logs-b", "--task", "lift", "--episodes", "6"]
    assert main([*words, "--dynamics", "mild", "--json"]) == 0
    result = json.loads(capsys.readouterr().out.splitlines()[-1])
    a, b = result["paired"]["policies"]
    assert (a["real"]["rate"], a["real"]["episodes"], a["simulated"]["episodes"]) == (pytest.approx(1 / 3), 3, 6)
    assert a["agreement"] == pytest.approx(2 / 3) and b["agreement"] == 1.0  # none is lifted in simulation
    assert b["powered"] == b["real"]
    assert result["dynamics"] == "mild" and result["paired"]["predicts"] is None
    assert main(words) == 0
    assert "2 of at least 4 policies" in " ".join(capsys.readouterr().out.split())


def test_pairs_begin_where_the_episodes_of_the_deployment_began(
    policies: list[Path], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture
) -> None:
    """With the deployment's seed in one world; the other episodes with --seed in as many worlds as are asked for."""
    starts, evaluate_policy = [], evaluate.evaluate_policy

    def noted(env, policy, *more):  # type: ignore[no-untyped-def]
        reset = env.reset

        def begin(**options):  # type: ignore[no-untyped-def]
            observation, infos = reset(**options)
            starts.append(observation["objects"].copy())
            return observation, infos

        env.reset = begin
        return evaluate_policy(env, policy, *more)

    monkeypatch.setattr(evaluate, "evaluate_policy", noted)
    words = ["--policy", "a", "--paired-with", "logs-a", "--task", "lift", "--episodes", "2", "--seed", "4"]
    assert main(["evaluate", *words]) == 0
    expected = [make_env("lift", worlds).reset(seed=seed)[0]["objects"] for worlds, seed in ((1, 7), (2, 4))]
    assert [len(start) for start in starts] == [1, 2] and not np.allclose(expected[0], expected[1][:1])
    for start, wanted in zip(starts, expected, strict=True):
        np.testing.assert_array_equal(start, wanted)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (
            ["--policy", "c", "--paired-with", "logs-a"],
            "--policy: got c, expected a policy that one of the",
        ),
        (["--policy", "a", "--paired-with", "logs-a", "logs-a"], "got two deployments of one policy"),
        (["--policy", "a", "--paired-with", "logs-a", "--task", "pick_place"], "got task lift, expected pick_place"),
        (["--policy", "a", "--paired-with", "logs-a", "--against", "b"], "got with --against, expected one of them"),
        (["--policy", "a", "--paired-with", "a"], "--paired-with a"),
    ],
)
def test_what_is_no_pair_is_a_line(
    words: list[str], said: str, policies: list[Path], capsys: pytest.CaptureFixture
) -> None:
    assert main(["evaluate", *words]) == 2
    err = capsys.readouterr().err
    assert said in err and err.count("\n") == 1


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"dry_run": True}, "got a dry run, in which the arm does not move, expected a deployment without --dry-run"),
        ({"policy": None}, "got no policy (None), expected a policy"),
        ({"succeeded": None}, "got no succeeded, expected true or false for each episode"),
        ({"succeeded": []}, "got no succeeded"),
        ({"succeeded": [True, None]}, "got succeeded [True, None], expected true or false"),
        ({"succeeded": ["yes", "no"]}, "got succeeded ['yes', 'no']"),
        ({"seed": None}, "got no seed, expected the seed of its starts"),
        ({"seed": "7"}, "got seed '7'"),
        ({"seed": -1}, "got seed -1"),
        ({"arm": "fr3"}, "got a deployment on fr3, expected on panda, as its policy"),
        ({"arm": None, "robot": "ur5e"}, "got a deployment on ur5e, expected on panda"),
    ],
)
def test_what_is_no_deployment_is_a_line(
    changed: dict, said: str, policies: list[Path], capsys: pytest.CaptureFixture
) -> None:
    path = Path("logs-a/result.json")
    path.write_text(json.dumps(json.loads(path.read_text()) | changed))
    assert main(["evaluate", "--policy", "a", "--paired-with", "logs-a", "logs-b"]) == 2
    err = capsys.readouterr().err
    assert "--paired-with logs-a" in err and said in err and err.count("\n") == 1
