"""Run folders: refused, locked, compared, rewound, listed."""

from __future__ import annotations

import json
import multiprocessing
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

from robolearn.core import BadInput
from robolearn.runs import Run, find_runs, inspect_run
from robolearn.runs.run import read_metrics

CONFIG = {"task": "lift", "rl": {"lr": 3e-4, "sizes": (64, 64)}, "total": 100}


def rows(path: Path) -> list[dict]:
    return list(read_metrics(path))


def test_a_new_run_stores_its_configuration_as_plain_json(tmp_path: Path) -> None:
    with Run.create(tmp_path / "a" / "b", {**CONFIG, "out": tmp_path, "gain": np.float32(0.5)}) as run:
        assert not run.resumed
    stored = json.loads((tmp_path / "a" / "b" / "config.json").read_text())
    assert stored["rl"] == {"lr": 3e-4, "sizes": [64, 64]}
    assert stored["out"] == str(tmp_path) and stored["gain"] == 0.5


def test_a_folder_with_content_is_refused_and_left_alone(tmp_path: Path) -> None:
    (tmp_path / "thesis.txt").write_text("years of work")
    with pytest.raises(BadInput, match="--resume"):
        Run.create(tmp_path, CONFIG)
    with pytest.raises(BadInput, match="without --resume"):
        Run.create(tmp_path, CONFIG, resume=True)
    assert [entry.name for entry in tmp_path.iterdir()] == ["thesis.txt"]


def test_a_file_in_the_place_of_the_folder_is_refused(tmp_path: Path) -> None:
    (tmp_path / "run").write_text("")
    with pytest.raises(BadInput, match="a file"):
        Run.create(tmp_path / "run", CONFIG)


def test_a_folder_below_a_file_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("mine")
    with pytest.raises(BadInput, match="file, which is a file, expected a folder"):
        Run.create(tmp_path / "file" / "run", CONFIG)


def test_what_a_kill_before_the_first_config_leaves_counts_as_empty(tmp_path: Path) -> None:
    (tmp_path / ".lock").write_text("1\n")
    (tmp_path / ".config.json.tmp").write_text("{")
    Run.create(tmp_path, CONFIG).close()
    assert json.loads((tmp_path / "config.json").read_text())["total"] == 100


def test_resuming_needs_a_run(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match=r"no config\.json"):
        Run.create(tmp_path / "new", CONFIG, resume=True)
    assert not (tmp_path / "new").exists()


def test_resuming_with_other_settings_names_the_first_that_differs(tmp_path: Path) -> None:
    Run.create(tmp_path, CONFIG).close()
    with pytest.raises(BadInput, match=r"'rl\.lr': got 0\.001, expected 0\.0003"):
        Run.create(tmp_path, {**CONFIG, "rl": {"lr": 1e-3, "sizes": [64, 64]}}, resume=True)
    with pytest.raises(BadInput, match=r"'seed': got 1, expected nothing"):
        Run.create(tmp_path, {**CONFIG, "seed": 1}, resume=True)
    with Run.create(tmp_path, CONFIG, resume=True) as run:
        assert run.resumed


def test_a_run_of_another_version_says_so(tmp_path: Path) -> None:
    Run.create(tmp_path, {**CONFIG, "rl": "Config(lr=0.0003)"}).close()
    with pytest.raises(BadInput, match="one of another version of robolearn"):
        Run.create(tmp_path, CONFIG, resume=True)


def test_named_settings_may_differ_and_are_stored_anew(tmp_path: Path) -> None:
    Run.create(tmp_path, CONFIG).close()
    new = {"task": "lift", "rl": {"lr": 1.0}, "total": 200}
    with Run.create(tmp_path, new, resume=True, may_differ=("total", "rl")):
        assert json.loads((tmp_path / "config.json").read_text()) == new


def test_settings_that_were_added_are_compared_once_they_are_stored(tmp_path: Path) -> None:
    Run.create(tmp_path, CONFIG).close()
    Run.create(tmp_path, {**CONFIG, "sha": "a"}, resume=True, added=("sha",)).close()
    with pytest.raises(BadInput, match=r"'sha': got \"b\", expected \"a\""):
        Run.create(tmp_path, {**CONFIG, "sha": "b"}, resume=True, added=("sha",))


def test_an_unreadable_configuration_is_bad_input(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text("{")
    with pytest.raises(BadInput, match=r"unreadable .*config\.json"):
        Run.create(tmp_path, CONFIG, resume=True)
    (tmp_path / "config.json").write_text("[]")
    with pytest.raises(BadInput, match="got list"):
        Run.create(tmp_path, CONFIG, resume=True)


def test_a_run_in_use_is_refused_until_it_is_closed(tmp_path: Path) -> None:
    run = Run.create(tmp_path, CONFIG)
    with pytest.raises(BadInput, match=f"in use by process {os.getpid()}"):
        Run.create(tmp_path, CONFIG, resume=True)
    with pytest.raises(BadInput, match="in use"):
        Run.create(tmp_path, CONFIG)
    assert inspect_run(tmp_path).status == "in use"
    run.close()
    run.close()
    assert inspect_run(tmp_path).status == "resumable"
    Run.create(tmp_path, CONFIG, resume=True).close()


HOLDER = """
import multiprocessing, sys, time
from robolearn.runs import Run
run = Run.create(sys.argv[1], {"a": 1})
worker = multiprocessing.get_context("fork").Process(target=time.sleep, args=(20,))
worker.start()
print(worker.pid, flush=True)
time.sleep(20)
"""


def test_the_lock_ends_with_a_killed_owner_even_if_a_forked_worker_lives_on(tmp_path: Path) -> None:
    owner = subprocess.Popen([sys.executable, "-c", HOLDER, str(tmp_path)], stdout=subprocess.PIPE, text=True)
    assert owner.stdout is not None
    worker = int(owner.stdout.readline())
    try:
        with pytest.raises(BadInput, match=f"in use by process {owner.pid}"):
            Run.create(tmp_path, {"a": 1}, resume=True)
        owner.kill()
        owner.wait(10)
        os.kill(worker, 0)  # it is alive
        Run.create(tmp_path, {"a": 1}, resume=True).close()
    finally:
        owner.kill()
        os.kill(worker, signal.SIGKILL)
        owner.stdout.close()


def _create(path: str, results: multiprocessing.SimpleQueue) -> None:
    try:
        run = Run.create(path, {"pid": os.getpid()})
    except BadInput:
        results.put("refused")
    else:
        results.put(run.config["pid"])
        os._exit(0)  # without closing: the run is the winner's


@pytest.mark.long
def test_of_processes_that_begin_one_run_together_only_one_wins(tmp_path: Path) -> None:
    context = multiprocessing.get_context("fork")
    results = context.SimpleQueue()
    workers = [context.Process(target=_create, args=(str(tmp_path / "run"), results)) for _ in range(4)]
    for worker in workers:
        worker.start()
    answers = [results.get() for _ in workers]
    for worker in workers:
        worker.join(10)
    winners = [answer for answer in answers if answer != "refused"]
    assert len(winners) == 1
    assert json.loads((tmp_path / "run" / "config.json").read_text()) == {"pid": winners[0]}


def test_metrics_are_readable_at_once_and_non_finite_numbers_become_null(tmp_path: Path) -> None:
    with Run.create(tmp_path, CONFIG) as run:
        run.log(0, {"loss": np.float32(0.25), "bad": float("nan")})
        assert rows(tmp_path) == [{"step": 0, "loss": 0.25, "bad": None}]
        run.log(1, {"loss": 1})
    assert [row["loss"] for row in rows(tmp_path)] == [0.25, 1]


def test_resuming_forgets_later_rows_and_half_written_ones(tmp_path: Path) -> None:
    with Run.create(tmp_path, CONFIG) as run:
        for step in range(5):
            run.log(step, {"loss": float(step)})
    with (tmp_path / "metrics.jsonl").open("a") as file:
        file.write('{"step": 5, "lo')
    with Run.create(tmp_path, CONFIG, resume=True) as run:
        run.rewind(3)
        run.log(3, {"loss": 30.0})
    assert [(row["step"], row["loss"]) for row in rows(tmp_path)] == [(0, 0.0), (1, 1.0), (2, 2.0), (3, 30.0)]


def test_what_is_no_row_is_left_out(tmp_path: Path) -> None:
    with Run.create(tmp_path, CONFIG) as run:
        run.log(0, {"loss": 1.0})
    with (tmp_path / "metrics.jsonl").open("ab") as file:
        file.write(b'{"step": null}\n{"step": "x"}\n[]\n\xff\xfe\n{"step": 1, "loss": 0.5}\n')
    assert [row["step"] for row in rows(tmp_path)] == [0, 1]
    assert inspect_run(tmp_path).step == 1
    with Run.create(tmp_path, CONFIG, resume=True) as run:
        run.rewind(1)
    assert [row["step"] for row in rows(tmp_path)] == [0]


def test_the_folder_is_let_go_even_where_closing_fails(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = Run.create(tmp_path, CONFIG)
    run.log(0, {"loss": 1.0})

    def full() -> None:
        raise OSError("No space left on device")

    monkeypatch.setattr(run.events, "close", full)
    with pytest.raises(OSError, match="No space left"):
        run.close()
    Run.create(tmp_path, CONFIG, resume=True).close()


@pytest.mark.long
def test_tensorboard_shows_the_resumed_values_only(tmp_path: Path) -> None:
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    with Run.create(tmp_path, CONFIG) as run:
        for step in range(5):
            run.log(step, {"loss": float(step)})
    time.sleep(1.0)  # TensorBoard reads its files in the order of their names, which begin with the second
    with Run.create(tmp_path, CONFIG, resume=True) as run:
        run.rewind(3)
        run.log(3, {"loss": 30.0})
    events = EventAccumulator(str(tmp_path / "tensorboard"))
    events.Reload()
    assert [(event.step, event.value) for event in events.Scalars("loss")] == [(0, 0), (1, 1), (2, 2), (3, 30)]


def test_runs_are_found_below_each_other_but_policies_and_data_are_not_runs(tmp_path: Path) -> None:
    Run.create(tmp_path / "quick", CONFIG).close()
    with Run.create(tmp_path / "quick" / "rl", CONFIG) as run:
        run.log(7, {"wall_s": 1.5})
        run.policy_dir.mkdir()
        (run.policy_dir / "config.json").write_text("{}")
        run.finish({"success": 1.0})
    (tmp_path / "quick" / "data").mkdir()
    Run.create(tmp_path / "sweep" / "lr=0.1" / "seed0", CONFIG).close()
    found = {
        str(info.path.relative_to(tmp_path)): (info.status, info.step, info.wall_s) for info in find_runs(tmp_path)
    }
    begun = ("resumable", None, None)
    assert found == {"quick": begun, "quick/rl": ("finished", 7, 1.5), "sweep/lr=0.1/seed0": begun}
    with pytest.raises(BadInput, match="no run folder"):
        inspect_run(tmp_path / "quick" / "data")
