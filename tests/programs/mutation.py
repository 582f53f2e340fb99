"""What the mutation checks share: the command line, running tests in a process of their own, and the verdict."""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parents[2]
COPIED = (".ci", "launch", "robolearn", "policies", "robots", "sim", "hardware", "tests", "pyproject.toml")


def tests_pass(root: Path, tests: Iterable[str | Path], *options: str, path: Iterable[Path] = ()) -> bool:
    """Whether all `tests` pass in the checkout `root`; stops at the first that does not.

    Args:
      options: more words for pytest.
      path: folders to import from besides `root`.
    """
    command = [sys.executable, "-m", "pytest", "-q", "-x", "--no-header", "-p", "no:cacheprovider", *options]
    places = os.pathsep.join(map(str, filter(None, (*path, root, os.environ.get("PYTHONPATH")))))
    environment = {**os.environ, "PYTHONPATH": places, "PYTHONDONTWRITEBYTECODE": "1"}
    done = subprocess.run(
        [*command, *map(str, tests)], cwd=root, env=environment, capture_output=True, text=True, timeout=600
    )
    if done.returncode not in (0, 1):  # 1: tests failed; anything else says nothing about the mutant
        sys.exit(f"pytest ended with exit code {done.returncode}:\n{done.stdout}\n{done.stderr}")
    return done.returncode == 0


def kill_all(
    what: str,
    available: Iterable[str],
    passes: Callable[[str | None], bool],
    sound: Callable[[list[str]], bool] | None = None,
) -> int:
    """Kill every mutant that the command line names, by default all; returns the exit code.

    Args:
      what: is mutated, in words.
      passes: whether the tests pass with a mutant; with None, those of all mutants and nothing mutated.
      sound: whether the tests of the mutants that are asked for pass with nothing mutated; by default ``passes(None)``.
    """
    every = list(available)
    parser = argparse.ArgumentParser(description="With any one mutant a test must fail.")
    parser.add_argument("mutants", nargs="*", metavar="MUTANT", help=f"of {', '.join(every)}; by default all")
    names = parser.parse_args().mutants or every
    unknown = [name for name in names if name not in every]
    if unknown:
        parser.error(f"no such mutant: {', '.join(unknown)}; there are {', '.join(every)}")
    print(f"{what} as it is: ", end="", flush=True)
    if not (passes(None) if sound is None else sound(names)):
        print("tests fail, so they say nothing about mutants")
        return 1
    print("tests pass")
    alive = []
    for name in names:
        began = time.monotonic()
        lives = passes(name)
        alive += [name] if lives else []
        print(f"{name}: {'NO TEST FAILS' if lives else 'killed'} ({time.monotonic() - began:.0f} s)", flush=True)
    living = f"; alive: {', '.join(alive)}" if alive else ""
    print(f"{len(names) - len(alive)} of {len(names)} mutants killed{living}")
    return 1 if alive else 0


class Mutant(NamedTuple):
    """`old` becomes `new` in `file`, and one of `tests` must fail."""

    file: str
    old: str
    new: str
    tests: tuple[str, ...]


def kill_replacements(what: str, mutants: Mapping[str, Mutant]) -> int:
    """Kill every mutant, each a replacement of source text in a temporary copy of the checkout; the exit code."""
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        for name in COPIED:
            source = ROOT / name
            if source.is_dir():
                shutil.copytree(source, root / name, ignore=shutil.ignore_patterns("__pycache__"))
            else:
                shutil.copy(source, root / name)

        def sound(names: list[str]) -> bool:
            return tests_pass(root, sorted({test for name in names for test in mutants[name].tests}))

        def passes(name: str | None) -> bool:
            assert name is not None
            mutant = mutants[name]
            text = (ROOT / mutant.file).read_text()
            if text.count(mutant.old) != 1:
                sys.exit(f"{name}: {mutant.old!r} stands {text.count(mutant.old)} times in {mutant.file}, not once")
            (root / mutant.file).write_text(text.replace(mutant.old, mutant.new))
            try:
                return tests_pass(root, mutant.tests)
            finally:
                (root / mutant.file).write_text(text)

        return kill_all(what, mutants, passes, sound)
