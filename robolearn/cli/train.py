"""``robolearn train``: a policy from demonstrations."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from robolearn.cli.command import Command, at_least, check_seed


@dataclass(frozen=True, kw_only=True)
class Train(Command):
    """Train a flow or diffusion policy on a data set by imitation. Can be killed at any moment and resumed."""

    data: Path
    """A LeRobotDataset v3.0 folder."""
    out: Path
    """The run folder; the policy goes to its policy/."""
    policy: Literal["flow", "diffusion"] = "flow"
    """The kind of policy."""
    flow: Literal["rectified", "shortcut"] = "rectified"
    """The kind of flow; shortcut models are also trained for large steps."""
    denoise_steps: int = 4
    """K, denoising steps from noise to action (diffusion: of DDIM)."""
    horizon: int = 4
    """Tp, actions in a predicted chunk."""
    execute: int = 4
    """Ta, how many of them are executed before the policy is asked again."""
    network: Literal["mlp", "unet1d"] = "mlp"
    """A residual MLP, or a conditional 1-D U-Net."""
    steps: int = 3000
    """Gradient steps."""
    batch: int = 256
    """Windows per gradient step."""
    lr: float = 1e-3
    """Learning rate after the warm-up; it falls on a cosine."""
    images: bool = True
    """Train from the cameras' images, too, where the data set has some."""
    weights: bool = False
    """Draw episodes by the weights that `robolearn dataset quality --weights` wrote into the data set."""
    validation: float = 0.0
    """Share of the episodes kept for validation."""
    seed: int = 0
    """Of the weights, the order of the data and the noise."""
    threads: int = 1
    """Threads of torch."""
    checkpoint_every: int = 10
    """Iterations (of 50 gradient steps) between two saved states."""
    resume: bool = False
    """Go on with the run in --out, exactly."""

    def run(self) -> dict[str, Any]:
        from robolearn.data.reader import Dataset
        from robolearn.io.json_files import plain
        from robolearn.runs import Progress, Run
        from robolearn.runs.loop import run_loop
        from robolearn.train.imitation import ImitationConfig, ImitationTrainer, split_episodes

        at_least(1, checkpoint_every=self.checkpoint_every)
        check_seed(self.seed)
        dataset = Dataset.open(self.data, images=self.images)
        config = ImitationConfig(
            policy=self.policy_config(),
            steps=self.steps,
            batch=self.batch,
            lr=self.lr,
            validation=self.validation,
            seed=self.seed,
            threads=self.threads,
        )
        weights = self._weights(dataset)
        if dataset.cameras:
            count = dataset.frames * len(dataset.cameras)
            with Progress("frame cache", total=count, unit="frames", quiet=self.json) as progress:
                dataset.build_cache(lambda done, _: progress(done))
        trainer = ImitationTrainer.of_dataset(config, dataset, weights=weights)
        chosen, _ = split_episodes(dataset.episodes, config)
        stored = {
            "command": "train",
            "data": str(self.data),  # the folder may move before a resumption; what is in it may not change
            "sha256": dataset.content(),
            "interface": dataset.interface.to_json(),
            "imitation": plain(config),
        } | ({"weights": weights} if weights else {})
        with Run.create(self.out, stored, resume=self.resume, may_differ=("data",)) as run:
            with Progress("imitation", total=config.iterations, unit="x 50 steps", show=("loss", "validation_loss"),
                          quiet=self.json) as progress:  # fmt: skip
                done = run_loop(
                    run, trainer, config.iterations, checkpoint_every=self.checkpoint_every, progress=progress
                )
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
        from robolearn.core import BadInput

        if self.weights and dataset.weights is None:
            hint = "`robolearn dataset quality --weights` writes them"
            raise BadInput(f"data set {self.data}", got="no sampling weights", expected="some", hint=hint)
        return dataset.weights if self.weights else None

    def policy_config(self) -> Any:
        from policies.diffusion_config import DiffusionConfig
        from policies.flow import FlowConfig
        from policies.networks.field import NetworkConfig

        network = NetworkConfig(kind=self.network)
        common = {"horizon": self.horizon, "execute": self.execute, "network": network}
        if self.policy == "flow":
            return FlowConfig(kind=self.flow, steps=self.denoise_steps, **common)
        return DiffusionConfig(steps=self.denoise_steps, **common)
