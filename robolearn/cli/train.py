"""``robolearn train``: a policy from demonstrations."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from policies.settings import POLICIES
from robolearn.cli.command import Command, at_least, check_seed, peek
from robolearn.core import BadInput
from robolearn.train.settings import ImitationConfig

if TYPE_CHECKING:
    from robolearn.data.reader import Dataset
    from robolearn.runs import Run
    from robolearn.train.imitation import ImitationTrainer


log = logging.getLogger(__name__)


@dataclass(frozen=True, kw_only=True)
class Train(Command):
    """Train a policy on data sets by imitation. Can be killed at any moment and resumed.

    Of several data sets (--data A B --mix 0.7 0.3) the first says what is observed and done; the others have to have
    the same arm, control rate, actions and observations. --policy chooses the kind of policy, and with it which of the
    settings below there are.
    """

    data: tuple[str, ...]
    """A LeRobotDataset v3.0 folder or its address, http://HOST/PATH, or several."""
    out: Path
    """The run folder; the policy goes to its policy/."""
    policy: str = "flow"
    """The kind of policy: flow, diffusion, regression or act."""
    settings: ImitationConfig = field(default_factory=ImitationConfig)
    observe: tuple[str, ...] = ()
    """What the policy sees, as in --observe proprio images.front; images stands for all cameras. By default all that
    the set has, but beside pictures nothing privileged: real arms have cameras, not a simulator's truth. prompt is
    the task in words, for a policy of several tasks: --data A B --mix 1 1 --observe proprio images prompt."""
    images: bool = True
    """Leave out the cameras with --no-images, as --observe proprio objects does."""
    mix: tuple[float, ...] = ()
    """Of several data sets, the share of each in the windows that are drawn, one number ≥ 0 for each set in proportion
    to its share. By default every window of all sets is drawn once per epoch."""
    weights: bool = False
    """Draw the episodes of a data set by the weights that `robolearn dataset quality --weights` wrote into it."""
    processes: int = 1
    """Processes that take a share of every batch each, with the gradient of the whole: on the CPU, or with --device
    cuda on a GPU each (extra processes)."""
    device: str = "auto"
    """Where the policy is trained: auto, cpu, cuda or cuda:<i>."""
    checkpoint_every: int = 10
    """Iterations (of --steps-per-iteration gradient steps) between two saved states."""
    resume: bool = False
    """Go on with the run in --out, exactly."""

    @classmethod
    def defaults(cls, args: Sequence[str]) -> dict[str, Any]:
        if sum(word == "--data" or word.startswith("--data=") for word in args) > 1:
            raise BadInput("--data", got="it twice", expected="all data sets after one, as in --data A B")
        kind = peek(args, "--policy", "flow")
        if kind not in POLICIES:
            raise BadInput("--policy", got=kind, available=POLICIES)
        return {"settings": ImitationConfig(policy=POLICIES[kind]())}

    def run(self) -> dict[str, Any]:
        from policies.loss import has_parts
        from robolearn.io.json_files import plain
        from robolearn.runs import Progress, Run
        from robolearn.runs.loop import run_loop
        from robolearn.train.imitation import split_episodes

        at_least(1, checkpoint_every=self.checkpoint_every, processes=self.processes)
        check_seed(self.settings.seed)
        if not self.data:
            raise BadInput("--data", got="nothing", expected="a data set, or several")
        if len(self.data) == 1 and self.mix:
            raise BadInput("--mix", got="one data set", expected="several, as in --data A B --mix 0.7 0.3")
        device = self._device(0)
        config = self.settings
        datasets, weights, shares = self._datasets()
        if privileged := datasets[0].interface.privileged:
            log.info("the policy sees %s, which only a simulated world has", ", ".join(privileged))
        self._build_cache(datasets)
        content = [dataset.content() for dataset in datasets]
        trainer = self.trainer(device, datasets, weights, shares)
        if self.processes > 1 and not has_parts(trainer.net):
            raise BadInput("--processes", got=f"{self.processes} for a policy of kind {self.policy}", expected="1")
        drawn: dict[str, Any] = {"data": self.data[0], "sha256": content[0]}
        if len(datasets) > 1:
            drawn = {"data": list(self.data), "sha256": content, "mix": shares}
        stored = {
            "command": "train",
            **drawn,  # the folders may move before a resumption; what is in them may not change
            "interface": datasets[0].interface.to_json(),
            "imitation": plain(config),
        } | ({"weights": weights if len(datasets) > 1 else weights[0]} if self.weights else {})
        with Run.create(self.out, stored, resume=self.resume, may_differ=("data",)) as run:
            progress = Progress("imitation", total=config.iterations, unit=f"x {config.steps_per_iteration} steps",
                                show=("loss", "validation_loss"), quiet=self.json)  # fmt: skip
            with self._together(trainer, run, device), progress:
                done = run_loop(run, trainer, checkpoint_every=self.checkpoint_every, progress=progress)
            result = {
                "run": str(self.out),
                "policy": str(run.policy_dir),
                "episodes": sum(len(split_episodes(dataset.episodes, config)[0]) for dataset in datasets),
                "frames": len(trainer.windows),
                "observes": list(datasets[0].interface.observation),
                "privileged": list(datasets[0].interface.privileged),
                "steps": config.steps,
                "wall_s": {"total": done["wall_s"]},
            }
            run.finish(result)
        return result

    def _device(self, rank: int) -> str:
        from robolearn.core.device import resolve_device

        device = resolve_device(self.device)
        if self.processes == 1:
            return device
        from robolearn.train.processes import MOST, device_of, need_accelerate

        if self.processes > min(MOST, self.settings.batch):
            expected = f"at most {min(MOST, self.settings.batch)}, and a window of the batch for each"
            raise BadInput("--processes", got=self.processes, expected=expected)
        need_accelerate()
        return device_of(device, rank, self.processes)

    def _datasets(self) -> tuple[list[Dataset], list[list[float] | None], list[float]]:
        """The sets, weights of their episodes, and their shares."""
        from robolearn.core.specs import PROMPT
        from robolearn.data.mixture import check_alike, shares_of
        from robolearn.data.reader import Dataset

        features = tuple(name for name in self.observe if name != PROMPT)
        datasets = [Dataset.open(path, images=self.images).seeing(features) for path in self.data]
        if PROMPT in self.observe:
            from policies.words import SentenceEncoder

            embed = SentenceEncoder()
            datasets = [dataset.with_words(embed) for dataset in datasets]
            words = {k: v for dataset in datasets for k, v in dataset.interface.extra["words"].items()}
            datasets[0] = datasets[0].knowing(words)
        shares = shares_of(self.mix or None, datasets)
        check_alike(datasets)
        return datasets, [self._weights(dataset) for dataset in datasets], shares

    def trainer(
        self, device: str, datasets: list[Dataset], weights: list[list[float] | None], shares: list[float]
    ) -> ImitationTrainer:
        """A trainer on what `_datasets` opened."""
        from robolearn.train.imitation import ImitationTrainer

        if len(datasets) == 1:
            return ImitationTrainer.of_dataset(self.settings, datasets[0], device, weights=weights[0])
        return ImitationTrainer.of_mixture(self.settings, datasets, shares, device, weights=weights)

    @contextmanager
    def _together(self, trainer: ImitationTrainer, run: Run, device: str) -> Iterator[None]:
        """Within, other processes work on the batches of `trainer` where there are any."""
        if self.processes == 1:
            yield
            return
        from robolearn.cli.train_process import task_of
        from robolearn.train.processes import lead

        with lead(self.processes, "robolearn.cli.train_process", task_of(self, run.state_dir), device) as together:
            trainer.together = together
            yield

    def follow(self, rank: int, meeting: Path, state: Path) -> None:
        """Do as the process that leads, whose states are in `state`, but write nothing."""
        from robolearn.runs.checkpoint import load_latest_state
        from robolearn.train.processes import Processes

        device = self._device(rank)
        trainer = self.trainer(device, *self._datasets())
        if (found := load_latest_state(state)) is not None:
            trainer.load_state(found[0], found[1]["trainer"])
        trainer.together = together = Processes(rank, self.processes, meeting, device)
        for i in range(trainer.done, trainer.iterations):
            trainer.iterate(i)
        together.close()

    def _build_cache(self, datasets: Sequence[Dataset]) -> None:
        from robolearn.runs import Progress

        total = sum(dataset.frames * len(dataset.cameras) for dataset in datasets)
        if not total:
            return
        with Progress("frame cache", total=total, unit="frames", quiet=self.json) as progress:
            before = 0
            for dataset in datasets:
                dataset.build_cache(lambda done, _, before=before: progress(before + done))
                before += dataset.frames * len(dataset.cameras)

    def _weights(self, dataset: Dataset) -> list[float] | None:
        if self.weights and dataset.weights is None:
            hint = "`robolearn dataset quality --weights` writes them"
            raise BadInput(f"data set {dataset.path}", got="no sampling weights", expected="some", hint=hint)
        return dataset.weights if self.weights else None
