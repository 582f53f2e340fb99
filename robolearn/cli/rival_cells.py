"""Cells of ``robolearn benchmark rivals``: imitation, and one rival from there, each for one task and seed.

A cell is a folder with ``cell.json``, written when it is finished; what is finished is not done again, and a run in it
that was stopped goes on.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from policies.settings import DenoisingConfig
from robolearn.bench.rivals.checkouts import Checkout, CodeFailed
from robolearn.cli.registry import find
from robolearn.core import BadInput
from robolearn.io.json_files import read_json, write_json
from robolearn.presets import PRESETS, WORLDS
from robolearn.runs.run import RESULT, check_same, is_run
from sim.registry import WorldConfig

log = logging.getLogger(__name__)

CELL = "cell.json"  # in a cell's folder: it is finished
IMITATION: dict[str, tuple[str, ...]] = {
    "flow": ("--policy", "flow"),
    "diffusion": ("--policy", "diffusion", "--denoise-steps", "5"),
}
"""Kind of policy → its flags of `robolearn train`."""
AT_THE_END = 1000  # seed of the starts that judge, beside the cell's


@dataclass(frozen=True)
class Rival:
    """Something that fine-tunes an imitated policy.

    Attributes:
      name: in the table.
      words: its flags of `robolearn finetune`.
      policy: the kind of policy that it begins with.
    """

    name: str
    words: tuple[str, ...]
    policy: str = "flow"

    def run(self, cells: Cells, task: str, seed: int, episodes: int) -> dict[str, Any]:
        """Its cell, with the success of ``imitation`` that it began with."""
        base = cells.imitated(task, seed, self.policy, episodes)
        return {"imitation": base["success"], **cells.tuned(task, seed, self, episodes)}

    def check(self, cells: Cells, task: str) -> None:
        """Raise `BadInput` for a flag that its algorithm does not have, or a budget that does not pay for it."""
        cells.finetune(task, 0, self, 0).check_budget(DenoisingConfig().execute)


@dataclass(frozen=True)
class TheirCode:
    """A rival's public code: it imitates the same demonstrations and fine-tunes, as published or repaired."""

    checkout: Checkout
    repaired: bool

    @property
    def name(self) -> str:
        """In the table."""
        return f"{self.checkout.name}-{'repaired' if self.repaired else 'published'}"

    def run(self, cells: Cells, task: str, seed: int, episodes: int) -> dict[str, Any]:
        """Its cell. Raises `CodeFailed`: the code failed."""
        from robolearn.bench.rivals.process import Job, run_job

        checkout, place = self.checkout, cells.place(task, seed)
        out = place / self.name
        settings = {"demonstrations": episodes, "env_steps": cells.env_steps, "repaired": self.repaired,
                    "configs": [checkout.imitation, checkout.tuning]}  # fmt: skip
        base = f"{checkout.name}-{episodes}-{Path(checkout.imitation).with_suffix('')}".replace("/", "-")

        def work() -> dict[str, Any]:
            return run_job(
                Job(
                    checkout=checkout,
                    repaired=self.repaired,
                    world=WorldConfig(task),
                    demonstrations=cells.demonstrations(task, seed, episodes),
                    out=out / "run",
                    base=place / base,
                    seed=seed,
                    train_steps=cells.train_steps,
                    env_steps=cells.env_steps,
                    eval_episodes=cells.eval_episodes,
                    judge_seed=AT_THE_END + seed,
                    judge_worlds=WORLDS,
                    device="cpu" if cells.device == "auto" else cells.device,
                )
            )

        return kept(out, settings | cells.judging(), work)

    def check(self, cells: Cells, task: str) -> None:
        """Nothing: its code was looked at when the checkout was."""


@dataclass(frozen=True)
class Cells:
    """All cells of a benchmark.

    Attributes:
      out: folder for them.
      env_steps: budget of each rival in control steps.
      train_steps: gradient steps of each imitation.
      eval_episodes: that judge each policy.
    """

    out: Path
    env_steps: int
    train_steps: int
    eval_episodes: int
    device: str
    quiet: bool

    def place(self, task: str, seed: int) -> Path:
        """The folder of a task and seed."""
        return self.out / task.replace(":", "-").replace("/", "-") / f"seed{seed}"

    def demonstrations(self, task: str, seed: int, episodes: int) -> Path:
        """The data set of so many demonstrations by the world's own expert."""
        from robolearn.cli.collect import Collect

        out = self.place(task, seed) / f"demos-{episodes}"
        quality = "expert" if ":" in task else PRESETS[task].quality if task in PRESETS else "narrow"
        Collect(
            world=WorldConfig(task), episodes=episodes, quality=quality, out=out, seed=seed, resume=out.exists(),
            json=self.quiet,
        ).run()  # fmt: skip
        return out

    def imitated(self, task: str, seed: int, kind: str, episodes: int) -> dict[str, Any]:
        """The cell of imitation: a policy of this kind, from so many demonstrations, judged."""
        from robolearn.cli.main import parse

        out = self.place(task, seed) / f"{kind}-{episodes}"
        words = ("--steps", str(self.train_steps), *IMITATION[kind])

        def learn() -> dict[str, Any]:
            data = self.demonstrations(task, seed, episodes)
            line = ["train", "--data", str(data), "--out", str(out / "run"), *words, *self._always(seed)]
            self._go_on(parse(*find(line)), out)
            return {"env_steps": 0}

        return self._cell(out, task, seed, {"words": list(words), "demonstrations": episodes}, learn)

    def tuned(self, task: str, seed: int, rival: Rival, episodes: int) -> dict[str, Any]:
        """The cell of `rival`, which begins with the imitation of so many demonstrations. Raises `CodeFailed`: it
        refused what it was given only when it ran."""
        out = self.place(task, seed) / rival.name

        def learn() -> dict[str, Any]:
            command = self.finetune(task, seed, rival, episodes)
            if command.settings.takes_demonstrations:
                command = replace(command, data=(self.demonstrations(task, seed, episodes),))
            try:
                return {"env_steps": self._go_on(command, out)["env_steps"]}
            except BadInput as error:  # as where choosing the noise leaves too few steps: the other rivals go on
                raise CodeFailed(str(error)) from error

        settings = {"words": list(rival.words), "demonstrations": episodes, "env_steps": self.env_steps}
        return self._cell(out, task, seed, settings, learn)

    def finetune(self, task: str, seed: int, rival: Rival, episodes: int) -> Any:
        """The fine-tuning of `rival`, without data. Raises `BadInput`: a flag that its algorithm does not have."""
        from robolearn.cli.main import parse

        place = self.place(task, seed)
        base, out = place / f"{rival.policy}-{episodes}" / "run", place / rival.name / "run"
        line = ["finetune", "--policy", str(base), "--task", task, *rival.words, "--env-steps", str(self.env_steps)]
        command: Any = parse(*find([*line, "--out", str(out), *self._always(seed)]))
        return replace(command, keep=replace(command.keep, episodes=0))  # it is judged on its own

    def _always(self, seed: int) -> tuple[str, ...]:
        return ("--seed", str(seed), "--device", self.device)

    def _go_on(self, command: Any, out: Path) -> dict[str, Any]:
        """The result of a training that goes on where it was stopped; a finished one returns what it wrote."""
        run = out / "run"
        if (run / RESULT).exists():
            return read_json(run / RESULT, what=f"run {run}")
        return replace(command, json=self.quiet, resume=is_run(run)).run()

    def _cell(
        self, out: Path, task: str, seed: int, settings: Mapping[str, Any], learn: Callable[[], dict[str, Any]]
    ) -> dict[str, Any]:
        """The result of `learn`, with its seconds, the success of the policy in ``run``, and the seconds of both."""
        from policies.storage.loading import open_policy
        from robolearn.bench.baselines import judged

        def work() -> dict[str, Any]:
            begun = time.perf_counter()
            done = learn()
            seconds = {"tuned": time.perf_counter() - begun}
            policy = open_policy(out / "run")
            found = judged(WorldConfig(task), policy, self.eval_episodes, AT_THE_END + seed, WORLDS)
            return done | {"success": found["success"], "seconds": seconds}

        return kept(out, {**settings, **self.judging()}, work)

    def judging(self) -> dict[str, int]:
        """Settings that all cells share."""
        return {"train_steps": self.train_steps, "eval_episodes": self.eval_episodes}


def kept(out: Path, settings: Mapping[str, Any], work: Callable[[], dict[str, Any]]) -> dict[str, Any]:
    """The cell in `out`; `work` does it, where it is not finished.

    Returns:
      what `work` returned, with ``wall_s``, of this part of the work alone where it had been stopped.

    Raises:
      BadInput: it was finished with other settings.
    """
    if not (out / CELL).exists():
        resumed, begun = out.exists(), time.perf_counter()
        log.info("%s", out)
        done = work()
        wall = {"total": time.perf_counter() - begun}
        out.mkdir(parents=True, exist_ok=True)
        write_json(out / CELL, {"settings": dict(settings), **done, "wall_s": wall, "resumed": resumed})
    cell = read_json(out / CELL, what=f"cell {out}")
    check_same(cell["settings"], dict(settings), f"cell {out}")
    return cell


def few_enough(first: int, band: Sequence[float], success: Callable[[int], float]) -> tuple[int, dict[int, float]]:
    """The number of demonstrations with which imitation stands within `band`, and all that were tried.

    `first` is halved until imitation stands below the upper bound; where it then stands below the lower one, too, the
    numbers between are halved. Where no number is within, it is the one whose success is nearest to the middle.

    Args:
      success: of imitation from so many demonstrations.
    """
    low, high = band
    tried: dict[int, float] = {}
    few, many, number = 0, 0, first  # the largest that is too few, the smallest that is too many; 0: none yet
    while number > few:
        tried[number] = rate = success(number)
        if low <= rate <= high or (rate < low and not many):
            break
        few, many = (number, many) if rate < low else (few, number)
        number = (few + many) // 2
    middle = (low + high) / 2
    return min(tried, key=lambda n: (abs(tried[n] - middle), n)), tried
