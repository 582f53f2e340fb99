"""``robolearn evaluate --paired-with``: episodes of deployments once more in simulation."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))

from untrained import make_constant

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
        result = {"policy": str(path), "task": "lift", "seed": 7, "succeeded": succeeded}
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
        (["--policy", "a", "--paired-with", "old"], "got no succeeded, expected an outcome for each episode"),
    ],
)
def test_what_is_no_pair_is_a_line(
    words: list[str], said: str, policies: list[Path], capsys: pytest.CaptureFixture
) -> None:
    Path("old").mkdir()
    Path("old/result.json").write_text(json.dumps({"policy": str(policies[0]), "task": "lift"}))
    assert main(["evaluate", *words]) == 2
    err = capsys.readouterr().err
    assert said in err and err.count("\n") == 1
