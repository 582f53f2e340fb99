"""Cells of ``robolearn benchmark offline``: stored demonstrations, two imitations, and each algorithm from there.

OUT/settings.json                       what all cells have
OUT/<task>/seed<k>/mixed, failures      demonstrations, and beside them with wrong steps: mixed-wrong, failures-wrong
                   good                 the successes of mixed
                   all, successes       imitation: cell.json, run
                   <algorithm>          its run, offline and online: two cells of one run
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from robolearn.cli.cells import CellFolder, kept
from robolearn.core import BadInput
from robolearn.io.json_files import read_json, write_json
from robolearn.runs.run import check_same

if TYPE_CHECKING:
    from robolearn.data.convert.corrupt import Corruption

SETTINGS = "settings.json"
ALL, SUCCESSES = "imitation of all", "imitation of successes"
IMITATIONS = {ALL: "all", SUCCESSES: "successes"}
"""Learner without rewards → its folder."""
FIRST = {"mixed": 20_000, "failures": 30_000}
"""Quality of demonstrations → seed of the first of them, beside the cell's: neither learned on nor judged by."""


@dataclass(frozen=True, kw_only=True)
class OfflineCells(CellFolder):
    """All cells of the benchmark.

    Attributes:
      episodes: demonstrations of each of two qualities.
      updates: of each algorithm, offline.
      env_steps: budget of control steps from there; 0: none.
      eval_every: iterations between evaluations on the way.
      corruption: of all demonstrations, or None.
    """

    episodes: int
    updates: int
    env_steps: int
    eval_every: int
    corruption: Corruption | None

    def begin(self) -> None:
        """Store the settings that all cells have. Raises `BadInput`: the folder has cells of others."""
        own = self.judging() | {
            "command": "benchmark offline",
            "episodes": self.episodes,
            "updates": self.updates,
            "env_steps": self.env_steps,
            "eval_every": self.eval_every,
            "corrupt": 0.0 if self.corruption is None else self.corruption.share,
            "corrupt_what": "" if self.corruption is None else " ".join(sorted(self.corruption.what)),
        }
        place = self.out / SETTINGS
        if place.exists():
            check_same(read_json(place, what=f"benchmark {self.out}"), own, f"benchmark {self.out}")
        elif self.out.is_dir() and any(self.out.iterdir()):
            raise BadInput(f"--out {self.out}", got="a folder of something else", expected="a new one, or one of these")
        else:
            self.out.mkdir(parents=True, exist_ok=True)
            write_json(place, own)

    def data(self, task: str, seed: int) -> dict[str, Path]:
        """The sets ``mixed`` and ``failures`` of a task and seed, with wrong steps where so asked, and ``good``."""
        from robolearn.cli.dataset.common import write_set
        from robolearn.data.convert import edit
        from robolearn.data.convert.corrupt import corrupt
        from robolearn.data.convert.source import open_numbers

        place = self.place(task, seed)
        sets = {
            quality: self.collected(place / quality, task, quality, self.episodes, first + seed)
            for quality, first in FIRST.items()
        }
        if self.corruption is not None:
            for quality, clean in sets.items():
                wrong = sets[quality] = clean.with_name(f"{quality}-wrong")
                if not wrong.exists():
                    own = replace(self.corruption, seed=FIRST[quality] + seed)
                    write_set(corrupt(open_numbers(clean), own), wrong, f"corrupting {quality}", self.quiet)
        good = place / "good"
        if not good.exists():
            mixed = open_numbers(sets["mixed"])
            kept_ones = [index for index, success in enumerate(mixed.success) if success]
            write_set(edit.keep(mixed, kept_ones), good, "writing the successes", self.quiet)
        return sets | {"good": good}

    def imitated(self, task: str, seed: int, learner: str) -> dict[str, Any]:
        """The cell of one of `IMITATIONS`."""
        out = self.place(task, seed) / IMITATIONS[learner]

        def learn() -> dict[str, Any]:
            sets = self.data(task, seed)
            data = (sets["good"],) if learner == SUCCESSES else (sets["mixed"], sets["failures"])
            words = ("train", "--data", *data, "--steps", self.train_steps, "--out", out / "run")
            self.go_on(self.command(*words, seed=seed))
            return {"env_steps": 0}

        return self.judged_cell(out, task, seed, {}, learn)

    def offline(self, task: str, seed: int, algo: str) -> dict[str, Any]:
        """The cell of an algorithm that learned from the data alone, after the imitation of all of them."""
        self.imitated(task, seed, ALL)
        return self._tuned(task, seed, algo, 0)

    def online(self, task: str, seed: int, algo: str) -> dict[str, Any]:
        """The cell of the same run with its control steps; ``switch`` as `finetune` returns it, or None."""
        return self._tuned(task, seed, algo, self.env_steps)

    def _tuned(self, task: str, seed: int, algo: str, env_steps: int) -> dict[str, Any]:
        command = self.finetune(task, seed, algo, env_steps)
        out = command.out.parent / ("online" if env_steps else "offline")

        def work() -> dict[str, Any]:
            out.mkdir(parents=True, exist_ok=True)  # a kill leaves it, and what comes after is a part of the work
            done = self.go_on(command)
            return {
                "env_steps": done["env_steps"],
                "success": done["evaluation"]["success"],
                "switch": done.get("switch"),
            }

        return kept(out, self.judging(), work)

    def finetune(self, task: str, seed: int, algo: str, env_steps: int) -> Any:
        """The command of an algorithm. Raises `BadInput`: it does not replay, or there is none."""
        place = self.place(task, seed)
        sets = [place / (quality if self.corruption is None else f"{quality}-wrong") for quality in FIRST]
        return self.command(
            "finetune", "--policy", place / IMITATIONS[ALL] / "run", "--task", task, "--algo", algo, "--data", *sets,
            "--updates", self.updates, "--env-steps", env_steps, "--eval-every", self.eval_every, "--eval-episodes",
            self.eval_episodes, "--out", place / algo / "run", seed=seed,
        )  # fmt: skip
