"""``robolearn train``: a policy from demonstrations."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from policies.settings import POLICIES
from robolearn.cli.command import Command, at_least, check_seed, peek
from robolearn.core import BadInput
from robolearn.train.settings import ImitationConfig


@dataclass(frozen=True, kw_only=True)
class Train(Command):
    """Train a flow or diffusion policy on a data set by imitation. Can be killed at any moment and resumed.

    --policy chooses the kind of policy, and with it which of the settings below there are.
    """

    data: Path
    """A LeRobotDataset v3.0 folder."""
    out: Path
    """The run folder; the policy goes to its policy/."""
    policy: str = "flow"
    """The kind of policy: flow or diffusion."""
    settings: ImitationConfig = field(default_factory=ImitationConfig)
    images: bool = True
    """Train from the cameras' images, too, where the data set has some."""
    weights: bool = False
    """Draw episodes by the weights that `robolearn dataset quality --weights` wrote into the data set."""
    device: str = "auto"
    """Where the policy is trained: auto, cpu, cuda or cuda:<i>."""
    checkpoint_every: int = 10
    """Iterations (of --steps-per-iteration gradient steps) between two saved states."""
    resume: bool = False
    """Go on with the run in --out, exactly."""

    @classmethod
    def defaults(cls, args: Sequence[str]) -> dict[str, Any]:
        kind = peek(args, "--policy", "flow")
        if kind not in POLICIES:
            raise BadInput("--policy", got=kind, available=POLICIES)
        return {"settings": ImitationConfig(policy=POLICIES[kind]())}

    def run(self) -> dict[str, Any]:
        from robolearn.core.device import resolve_device
        from robolearn.data.reader import Dataset
        from robolearn.io.json_files import plain
        from robolearn.runs import Progress, Run
        from robolearn.runs.loop import run_loop
        from robolearn.train.imitation import ImitationTrainer, split_episodes

        at_least(1, checkpoint_every=self.checkpoint_every)
        check_seed(self.settings.seed)
        device = resolve_device(self.device)
        dataset = Dataset.open(self.data, images=self.images)
        config = self.settings
        weights = self._weights(dataset)
        if dataset.cameras:
            count = dataset.frames * len(dataset.cameras)
            with Progress("frame cache", total=count, unit="frames", quiet=self.json) as progress:
                dataset.build_cache(lambda done, _: progress(done))
        trainer = ImitationTrainer.of_dataset(config, dataset, device, weights=weights)
        chosen, _ = split_episodes(dataset.episodes, config)
        stored = {
            "command": "train",
            "data": str(self.data),  # the folder may move before a resumption; what is in it may not change
            "sha256": dataset.content(),
            "interface": dataset.interface.to_json(),
            "imitation": plain(config),
        } | ({"weights": weights} if weights else {})
        with Run.create(self.out, stored, resume=self.resume, may_differ=("data",)) as run:
            with Progress("imitation", total=config.iterations, unit=f"x {config.steps_per_iteration} steps",
                          show=("loss", "validation_loss"), quiet=self.json) as progress:  # fmt: skip
                done = run_loop(run, trainer, checkpoint_every=self.checkpoint_every, progress=progress)
            result = {
                "run": str(self.out),
                "policy": str(run.policy_dir),
                "episodes": len(chosen),
                "frames": len(trainer.windows),
                "steps": config.steps,
                "wall_s": {"total": done["wall_s"]},
            }
            run.finish(result)
        return result

    def _weights(self, dataset: Any) -> list[float] | None:
        if self.weights and dataset.weights is None:
            hint = "`robolearn dataset quality --weights` writes them"
            raise BadInput(f"data set {self.data}", got="no sampling weights", expected="some", hint=hint)
        return dataset.weights if self.weights else None
