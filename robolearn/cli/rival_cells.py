"""Cells of ``robolearn benchmark rivals``: imitation, and one rival from there, each for one task and seed."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from policies.settings import DenoisingConfig
from robolearn.bench.rivals.checkouts import Checkout, CodeFailed
from robolearn.cli.cells import CellFolder, kept
from robolearn.cli.evaluator import AT_THE_END
from robolearn.core import BadInput
from robolearn.presets import PRESETS, WORLDS
from sim.registry import WorldConfig

IMITATION: dict[str, tuple[str, ...]] = {
    "flow": ("--policy", "flow"),
    "diffusion": ("--policy", "diffusion", "--denoise-steps", "5"),
}
"""Kind of policy → its flags of `robolearn train`."""


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


@dataclass(frozen=True, kw_only=True)
class Cells(CellFolder):
    """All cells of a comparison of rivals.

    Attributes:
      env_steps: budget of each rival in control steps.
    """

    env_steps: int

    def demonstrations(self, task: str, seed: int, episodes: int) -> Path:
        """The data set of so many demonstrations by the world's own expert."""
        quality = "expert" if ":" in task else PRESETS[task].quality if task in PRESETS else "narrow"
        return self.collected(self.place(task, seed) / f"demos-{episodes}", task, quality, episodes, seed)

    def imitated(self, task: str, seed: int, kind: str, episodes: int) -> dict[str, Any]:
        """The cell of imitation: a policy of this kind, from so many demonstrations, judged."""
        out = self.place(task, seed) / f"{kind}-{episodes}"
        words = ("--steps", str(self.train_steps), *IMITATION[kind])

        def learn() -> dict[str, Any]:
            data = self.demonstrations(task, seed, episodes)
            self.go_on(self.command("train", "--data", data, "--out", out / "run", *words, seed=seed))
            return {"env_steps": 0}

        return self.judged_cell(out, task, seed, {"words": list(words), "demonstrations": episodes}, learn)

    def tuned(self, task: str, seed: int, rival: Rival, episodes: int) -> dict[str, Any]:
        """The cell of `rival`, which begins with the imitation of so many demonstrations. Raises `CodeFailed`: it
        refused what it was given only when it ran."""
        out = self.place(task, seed) / rival.name

        def learn() -> dict[str, Any]:
            command = self.finetune(task, seed, rival, episodes)
            if command.settings.takes_demonstrations:
                command = replace(command, data=(self.demonstrations(task, seed, episodes),))
            try:
                return {"env_steps": self.go_on(command)["env_steps"]}
            except BadInput as error:  # as where choosing the noise leaves too few steps: the other rivals go on
                raise CodeFailed(str(error)) from error

        settings = {"words": list(rival.words), "demonstrations": episodes, "env_steps": self.env_steps}
        return self.judged_cell(out, task, seed, settings, learn)

    def finetune(self, task: str, seed: int, rival: Rival, episodes: int) -> Any:
        """The fine-tuning of `rival`, without data. Raises `BadInput`: a flag that its algorithm does not have."""
        place = self.place(task, seed)
        base, out = place / f"{rival.policy}-{episodes}" / "run", place / rival.name / "run"
        words = ("finetune", "--policy", base, "--task", task, *rival.words, "--env-steps", self.env_steps)
        command = self.command(*words, "--out", out, seed=seed)
        return replace(command, keep=replace(command.keep, episodes=0))  # it is judged on its own


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
