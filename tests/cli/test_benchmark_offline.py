"""`robolearn benchmark offline`: bad input in one line; a tiny run that is killed and goes on; wrong steps for all."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import time
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from robolearn.cli.main import main
from robolearn.cli.offline_cells import OfflineCells
from robolearn.runs.command import PROGRAM

ROOT = Path(__file__).resolve().parents[2]


def asked(out: Path, *more: str) -> list[str]:
    return ["benchmark", "offline", "--out", str(out), "--tasks", "lift", "--algos", "iql", "cal_ql",
            "--seeds", "0", "1", "--episodes", "6", "--train-steps", "20", "--updates", "20", "--env-steps", "1536",
            "--eval-every", "1", "--eval-episodes", "4", *more]  # fmt: skip


@pytest.fixture
def idle(monkeypatch: pytest.MonkeyPatch) -> None:
    """A benchmark that is not refused fails at its first cell, in the place of minutes of work."""
    monkeypatch.setattr(OfflineCells, "imitated", lambda *_: pytest.fail("it begins"))


@pytest.mark.usefixtures("idle")
@pytest.mark.parametrize(
    ("more", "says"),
    [
        (["--algos", "iq"], "--algos: got iq; available: proposals"),
        (["--algos", "reinflow"], "--algos: got reinflow; available: proposals"),
        (["--algos"], "--algos: missing; expected different names, at least one"),
        (["--algos", "iql", "iql"], "--algos: got iql iql, expected different names"),
        (["--seeds"], "--seeds: missing; expected different numbers"),
        (["--seeds", "1", "1"], "--seeds: got 1 1"),
        (["--tasks", "lif"], "did you mean lift"),
        (["--tasks"], "--tasks: missing"),
        (["--env-steps", "10"], "--env-steps: got 10, expected at least 512"),
        (["--env-steps", "2048", "--tasks", "pick_place"], "got 2048, expected 0, or at least 2,880 for pick_place"),
        (["--env-steps", "-1"], "--env-steps: got -1, expected 0 or more"),
        (["--updates", "2000", "--eval-every", "5"], "--eval-every: got 5 for 8 iterations of 250 updates"),
        (["--corrupt", "1.5"], "--corrupt: got 1.5, expected 0 to 1"),
        (["--corrupt", "0.3", "--corrupt-what"], "--corrupt-what: missing"),
        (["--corrupt", "0.3", "--corrupt-what", "words"], "words"),
    ],
)
def test_what_cannot_work_is_refused_in_a_line_before_anything_is_written(
    tmp_path: Path, capsys: pytest.CaptureFixture, more: list[str], says: str
) -> None:
    assert main(asked(tmp_path / "x", *more)) == 2
    err = capsys.readouterr().err
    assert says in err and err.count("\n") == 1 and not (tmp_path / "x").exists()


@pytest.mark.usefixtures("idle")
def test_a_folder_of_other_settings_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture) -> None:
    settings = {"command": "benchmark offline", "train_steps": 20, "eval_episodes": 4, "episodes": 6, "updates": 20,
                "env_steps": 1536, "eval_every": 1, "corrupt": 0.0, "corrupt_what": ""}  # fmt: skip
    (tmp_path / "settings.json").write_text(json.dumps(settings))
    for more, says in (
        (["--episodes", "7"], "'episodes': got 7, expected 6"),
        (["--env-steps", "2048"], "'env_steps': got 2048, expected 1536"),
        (["--corrupt", "0.3"], "'corrupt': got 0.3, expected 0.0"),
    ):
        assert main(asked(tmp_path, *more)) == 2
        err = capsys.readouterr().err
        assert says in err and err.count("\n") == 1
    (tmp_path / "settings.json").unlink()
    (tmp_path / "mine.txt").write_text("")
    assert main(asked(tmp_path)) == 2
    assert "got a folder of something else" in capsys.readouterr().err
    assert [file.name for file in tmp_path.iterdir()] == ["mine.txt"]


def last(text: str) -> dict[str, Any]:
    return json.loads(text.splitlines()[-1])


def actions(path: Path) -> pa.ChunkedArray:
    return pa.concat_tables(pq.read_table(file) for file in sorted(path.glob("data/*/*.parquet")))["action"]


def until(condition: Any) -> None:
    end = time.monotonic() + 300
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.05)


@pytest.mark.long
def test_a_killed_benchmark_goes_on_and_does_nothing_again(tmp_path: Path, capsys: pytest.CaptureFixture) -> None:
    """Killed within the first algorithm's control steps: what was finished stays to the byte, the run goes on."""
    out, words = tmp_path / "out", asked(tmp_path / "out", "--algos", "iql", "--corrupt", "0.33", "--json")
    place = out / "lift" / "seed0"
    env = {**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
    process = subprocess.Popen([*PROGRAM, *words], env=env, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        until(lambda: (place / "iql" / "online").exists())
    finally:
        process.send_signal(signal.SIGKILL)
        process.wait()
    finished = {file: file.read_bytes() for file in place.rglob("cell.json")}
    assert {str(file.parent.relative_to(place)) for file in finished} == {"all", "successes", "iql/offline"}
    trained = (place / "all" / "run" / "metrics.jsonl").read_bytes()
    assert main(words) == 0
    result = last(capsys.readouterr().out)
    assert all(file.read_bytes() == content for file, content in finished.items())
    assert (place / "all" / "run" / "metrics.jsonl").read_bytes() == trained
    rows = {row["learner"]: row for row in result["rows"]}
    assert list(rows) == ["imitation of all", "imitation of successes", "iql"]
    for name, row in rows.items():
        assert [cell["seed"] for cell in row["cells"]] == [0, 1] and row["offline"]["count"] == 2
        assert row["env_steps"]["mean"] == (0 if "imitation" in name else 1536)
    for seed, one in enumerate(rows["iql"]["cells"]):
        ran = out / "lift" / f"seed{seed}" / "iql" / "run"
        seen = [json.loads(line) for line in (ran / "metrics.jsonl").read_text().splitlines()]
        rates = [row["eval_success"] for row in seen if row["env_steps"]]
        (offline,) = [row["eval_success"] for row in seen if not row["env_steps"]]
        assert one["switch"]["dip"] == pytest.approx(offline - min(rates[:3])) and len(rates) == 3
        judged = json.loads((ran / "result.json").read_text())["evaluation"]["success"]
        assert one["online"] == judged and one["online"]["episodes"] == 4
    assert [one["phase"] for one in result["best"]] == ["offline", "online"]
    assert (out / "report.html").read_text().count("<svg") == 1 and "33% of the steps" in (
        out / "report.html"
    ).read_text()
    assert result["corruption"] == {"share": 0.33, "what": ["actions", "observations"]}
    _wrong_for_all(place)
    assert main(words[:-1]) == 0, "the same in words"
    assert "lift, online:" in capsys.readouterr().out


def _wrong_for_all(place: Path) -> None:
    """All learners saw the wrong sets, which differ from the right ones in a third of the steps."""
    mixed, wrong = actions(place / "mixed"), actions(place / "mixed-wrong")
    changed = sum(a != b for a, b in zip(mixed.to_pylist(), wrong.to_pylist(), strict=True))
    assert changed == round(0.33 * len(mixed))
    config = {
        name: json.loads((place / name / "run" / "config.json").read_text()) for name in ("all", "successes", "iql")
    }
    assert [Path(path).name for path in config["all"]["data"]] == ["mixed-wrong", "failures-wrong"]
    assert Path(config["successes"]["data"]).name == "good"
    assert [Path(path).name for path in config["iql"]["demonstrations"]["path"]] == ["mixed-wrong", "failures-wrong"]
    lengths = [len(actions(place / name)) for name in ("good", "mixed")]
    assert 0 < lengths[0] < lengths[1]
    kept_ones = {tuple(row) for row in actions(place / "good").to_pylist()}
    assert kept_ones <= {tuple(row) for row in wrong.to_pylist()}, "the successes have the wrong steps, too"
