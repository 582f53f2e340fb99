"""The plumbing of the `robolearn` program: exit codes, one-line errors, JSON, quick help."""

from __future__ import annotations

import errno
import json
import os
import re
import signal
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pytest

import robolearn.cli.main
import robolearn.cli.registry
import robolearn.runs.command
from robolearn.core import BadInput, RobolearnError

main, parse = robolearn.cli.main.main, robolearn.cli.main.parse
Entry = robolearn.cli.registry.Entry
PROGRAM = [sys.executable, "-c", "import sys; from robolearn.cli.main import main; sys.exit(main())"]


@dataclass(frozen=True, kw_only=True)
class Try(robolearn.runs.command.Command):
    """A command for these tests."""

    how: Literal["well", "bad", "fail", "stop", "full", "bug"] = "well"
    """What happens."""
    times: int = 1
    resume: bool = False

    def run(self) -> dict[str, Any]:
        if self.how == "bad":
            raise BadInput("task", got="lft", available=["lift", "peg_insert"])
        if self.how == "fail":
            raise RobolearnError("physics\nexploded")
        if self.how == "stop":
            raise KeyboardInterrupt
        if self.how == "full":
            raise OSError(errno.ENOSPC, "No space left on device", "runs/x")
        if self.how == "bug":
            raise ZeroDivisionError
        rate = {"rate": np.float64(0.935), "low": 0.901, "high": 0.959, "episodes": 400}
        return {"success": rate, "wall_s": {"total": float("nan")}, "path": Path("runs/x"), "times": self.times}


@pytest.fixture
def entries(monkeypatch: pytest.MonkeyPatch) -> tuple[Entry, ...]:
    # Importlib mode gives this file no name to import it by, so the class is handed over directly.
    monkeypatch.setattr(Entry, "load", lambda self: Try)
    return tuple(Entry(name, "", f"what {name} does", "Tests") for name in ("try", "bench sim", "bench rl"))


def test_a_result_for_scripts_is_one_json_line(entries: tuple[Entry, ...], capsys: pytest.CaptureFixture) -> None:
    assert main(["try", "--json", "--times", "3"], entries) == 0
    out = capsys.readouterr().out
    assert out.count("\n") == 1
    assert json.loads(out) == {
        "success": {"rate": 0.935, "low": 0.901, "high": 0.959, "episodes": 400},
        "wall_s": {"total": None},
        "path": "runs/x",
        "times": 3,
    }


def test_a_result_for_people_is_a_summary(entries: tuple[Entry, ...], capsys: pytest.CaptureFixture) -> None:
    assert main(["try"], entries) == 0
    assert re.search(r"success +93\.5% \(90\.1–95\.9, 400 episodes\)", capsys.readouterr().out)


@pytest.mark.parametrize(
    ("how", "code", "line"),
    [
        ("bad", 2, "robolearn: error: task: got lft; available: lift, peg_insert (did you mean lift?)\n"),
        ("fail", 1, "robolearn: error: physics exploded\n"),
        ("full", 1, "robolearn: error: runs/x: no space left on device. Make room, then run it again\n"),
        ("stop", 130, "\nrobolearn: stopped. What was finished is on disk. Go on: robolearn try --how stop --resume\n"),
    ],
)
def test_exit_codes_and_one_line(
    entries: tuple[Entry, ...], capsys: pytest.CaptureFixture, how: str, code: int, line: str
) -> None:
    assert main(["try", "--how", how], entries) == code
    out, err = capsys.readouterr()
    assert not out and err == line


def test_after_ctrl_c_the_line_that_is_said_works(
    entries: tuple[Entry, ...], monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture
) -> None:
    """--resume finds nothing before something was begun; what goes on without it says so too."""

    @dataclass(frozen=True, kw_only=True)
    class Long(Try):
        out: Path

    monkeypatch.setattr(Entry, "load", lambda self: Long)
    words = ["try", "--how", "stop", "--out", str(tmp_path / "run")]
    assert main(words, entries) == 130
    assert capsys.readouterr().err.endswith("stopped. Nothing had begun in --out; the same command begins anew.\n")
    (tmp_path / "run").mkdir()
    (tmp_path / "run/config.json").write_text("{}")
    assert main(words, entries) == 130
    assert capsys.readouterr().err.endswith(f"Go on: robolearn {' '.join(words)} --resume\n")

    @dataclass(frozen=True, kw_only=True)
    class Again(robolearn.runs.command.Command):
        def goes_on(self) -> bool:
            return True

        def run(self) -> dict[str, Any]:
            raise KeyboardInterrupt

    monkeypatch.setattr(Entry, "load", lambda self: Again)
    assert main(["try"], entries) == 130
    assert capsys.readouterr().err.endswith("What was finished is on disk. Go on: robolearn try\n")


def test_what_goes_on_without_a_flag_says_so() -> None:
    given = {
        "trial run": ["t"],
        "benchmark rl": [],
        "benchmark hil": [],
        "reward score": ["--reward", "r", "--data", "d"],
    }
    for entry in robolearn.cli.registry.ENTRIES:
        if entry.name in given:
            plain = parse(entry, given[entry.name])
            assert plain.goes_on() == (entry.name != "reward score"), entry.name
            assert entry.name != "reward score" or parse(entry, [*given[entry.name], "--write"]).goes_on()


def test_a_bug_is_not_hidden(entries: tuple[Entry, ...]) -> None:
    with pytest.raises(ZeroDivisionError):
        main(["try", "--how", "bug"], entries)


@pytest.mark.parametrize(
    ("args", "words"),
    [
        (["--tims", "3"], "--tims"),
        (["--times", "three"], "three"),
        (["--how", "badly"], "got badly; available: well, bad"),
        (["stray"], "stray"),
    ],
)
def test_bad_flags_are_one_line_and_exit_code_2(
    entries: tuple[Entry, ...], capsys: pytest.CaptureFixture, args: list[str], words: str
) -> None:
    assert main(["try", *args], entries) == 2
    out, err = capsys.readouterr()
    assert not out and err.count("\n") == 1 and words in err
    assert err.startswith("robolearn: error: robolearn try: ") and err.endswith("See robolearn try --help\n")
    assert not set(err) & set("╭│╰─")


def test_commands_of_two_words(entries: tuple[Entry, ...], capsys: pytest.CaptureFixture) -> None:
    assert main(["bench", "sim", "--json"], entries) == 0
    assert main(["bench"], entries) == 0
    said = capsys.readouterr().out
    assert "bench sim" in said and "bench rl" in said and "try" not in said.split("Examples")[0]
    assert main(["bench", "sin"], entries) == 2
    assert "did you mean bench sim?" in capsys.readouterr().err


def test_an_unknown_command_suggests_the_nearest(entries: tuple[Entry, ...], capsys: pytest.CaptureFixture) -> None:
    assert main(["tyr"], entries) == 2
    err = capsys.readouterr().err
    assert "got tyr" in err and "did you mean try?" in err and err.count("\n") == 1


def test_an_episode_is_replayed_by_a_command_that_is_said_in_whole(capsys: pytest.CaptureFixture) -> None:
    assert main(["replay", "data/lift"]) == 2
    command = "robolearn deploy --policy episode:DATA#N --robot sim"
    err = capsys.readouterr().err
    assert err.endswith(f"A recorded episode is replayed by {command}\n") and "did you mean" not in err
    parse(next(entry for entry in robolearn.cli.registry.ENTRIES if entry.name == "deploy"), command.split()[2:])


def test_the_help_names_every_command_by_group(entries: tuple[Entry, ...], capsys: pytest.CaptureFixture) -> None:
    for args in ([], ["--help"], ["-h"], ["help"], ["help", "--help"]):
        assert main(args, entries) == 0
        out = capsys.readouterr().out
        assert "Tests" in out
        assert all(entry.name in out and entry.summary in out for entry in entries)


@pytest.mark.parametrize("args", [["try", "--help"], ["help", "try"]])
def test_the_help_of_a_command_lists_its_flags(
    entries: tuple[Entry, ...], capsys: pytest.CaptureFixture, args: list[str]
) -> None:
    with pytest.raises(SystemExit) as stop:
        main(args, entries)
    assert not stop.value.code
    out = capsys.readouterr().out
    assert all(word in out for word in ("robolearn try", "--how", "What happens.", "--json", "--resume"))
    assert "--no-json" not in out


def test_the_version(capsys: pytest.CaptureFixture) -> None:
    assert main(["--version"]) == 0
    assert capsys.readouterr().out == f"robolearn {robolearn.__version__}\n"


def test_every_registered_command_loads_light_and_has_a_docstring() -> None:
    """A module that drags torch or MuJoCo in at import makes every --help slow."""
    script = (
        "import sys\n"
        "from robolearn.cli.registry import ENTRIES\n"
        "for entry in ENTRIES:\n"
        "    assert entry.load().__doc__, entry\n"
        "    heavy = {'torch', 'mujoco', 'numba', 'matplotlib', 'pyarrow', 'diffusers'} & set(sys.modules)\n"
        "    assert not heavy, (entry.name, heavy)\n"
    )
    subprocess.run([sys.executable, "-c", script], check=True, timeout=60)


@pytest.mark.long
def test_the_overview_loads_next_to_nothing() -> None:
    """It has to answer at once: of others' packages it needs rich alone; no room but these."""
    listed = "import sys; print(*sys.modules)"
    whole = f"from robolearn.cli.main import main; main(['--help']); {listed}"
    at_start, loaded = (
        subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True, timeout=60)
        .stdout.splitlines()[-1]
        .split()
        for script in (listed, whole)
    )
    new = set(loaded) - set(at_start)
    assert {name.partition(".")[0] for name in new} - sys.stdlib_module_names == {"robolearn", "rich"}
    assert {name.split(".")[1] for name in new if name.startswith("robolearn.")} == {"cli", "core", "io"}


def test_a_reader_that_leaves_early_causes_no_traceback(tmp_path: Path) -> None:
    reader, writer = os.pipe()
    os.close(reader)
    done = subprocess.run(
        [*PROGRAM, "runs", "--json", str(tmp_path)], stdout=writer, stderr=subprocess.PIPE, text=True, timeout=60
    )
    os.close(writer)
    assert done.returncode == 1 and not done.stderr


def test_a_real_ctrl_c_ends_with_130() -> None:
    script = (
        "import sys, time\n"
        "from dataclasses import dataclass\n"
        "from robolearn.runs.command import Command\n"
        "from robolearn.cli.main import main\n"
        "from robolearn.cli.registry import Entry\n"
        "@dataclass(frozen=True, kw_only=True)\n"
        "class Wait(Command):\n"
        "    def run(self):\n"
        "        print('waiting', flush=True)\n"
        "        time.sleep(30)\n"
        "        return {}\n"
        "sys.exit(main(['wait'], (Entry('wait', '__main__:Wait', '', ''),)))\n"
    )
    child = subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert child.stdout is not None
    assert child.stdout.readline() == "waiting\n"
    child.send_signal(signal.SIGINT)
    _, err = child.communicate(timeout=20)
    assert child.returncode == 130 and err == "\nrobolearn: stopped. What was finished is on disk.\n"
