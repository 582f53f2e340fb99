"""``robolearn finetune``: online RL that starts from a trained policy."""

from __future__ import annotations

import logging
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from robolearn.cli.command import Command, at_least, cameras_for, check_seed, world_action_kind
from robolearn.io.hashes import sha256

if TYPE_CHECKING:
    from robolearn.presets import RlPreset
    from robolearn.rl.config import ReinFlowConfig

log = logging.getLogger(__name__)


@dataclass(frozen=True, kw_only=True)
class Finetune(Command):
    """Fine-tune a flow policy by online RL. Can be killed at any moment and resumed exactly."""

    policy: Path
    """A run folder or a checkpoint folder."""
    task: str = "lift"
    """lift, pick_place, peg_insert, robosuite:<Name> or gym:<module>:<Id-v0>."""
    out: Path
    """The run folder; the tuned policy goes to its policy/."""
    algo: Literal["reinflow"] = "reinflow"
    """The algorithm."""
    env_steps: int | None = None
    """Budget of control steps, the calibration of the noise included; by default 300,000, or the task's preset."""
    worlds: int | None = None
    """Worlds side by side; by default 64, or the task's preset."""
    decisions: int = 20
    """Action chunks a world and iteration."""
    epochs: int = 3
    """Passes over an iteration's data."""
    minibatch: int | None = None
    """Chunks per gradient step; by default half of an iteration's."""
    actor_lr: float = 2e-4
    """Learning rate of the policy at the beginning; it then follows --target-kl."""
    target_kl: float = 0.015
    """How far one iteration moves the policy."""
    noise_steps: Literal["last", "all"] = "last"
    """Denoising steps that are noised: the last one, or all as in the paper."""
    gamma: float | None = None
    """Discount of one decision (an executed chunk); by default 0.99, or the task's preset."""
    lam: float | None = None
    """λ of generalised advantage estimation; by default 0.9, or the task's preset."""
    entropy: float = 0.0
    """Weight of the entropy term."""
    regulariser: Literal["none", "kl", "w2"] = "none"
    """Distance that keeps the policy near the demonstrations."""
    regularisation: float = 0.0
    """Its weight."""
    sigma_max: float = 0.0
    """Largest exploration noise, in units of the normalised action; 0 chooses it by calibration."""
    reward: Literal["sparse", "dense"] = "sparse"
    """Reward of the embedded tasks."""
    seed: int = 0
    """Of starts, noise and everything else."""
    threads: int = 2
    """Shares of a batch that are learned from side by side; the same number gives the same weights, bit for bit, on any
    number of CPUs. The simulation uses every CPU."""
    checkpoint_every: int = 5
    """Iterations between two saved states; more for gym: and robosuite: worlds, whose episodes end there."""
    resume: bool = False
    """Go on with the run in --out, exactly."""

    def run(self) -> dict[str, Any]:
        import torch

        from policies.checkpoint import load_policy
        from robolearn.io.json_files import plain
        from robolearn.rl.reinflow import ReinFlowTrainer
        from robolearn.runs import Progress, Run
        from robolearn.runs.loop import run_loop
        from sim.registry import make_env

        at_least(1, threads=self.threads, checkpoint_every=self.checkpoint_every)
        check_seed(self.seed)
        preset = self._preset()
        torch.set_num_threads(1)
        policy = load_policy(self.policy)
        config = self._config(preset)
        stored = {
            "command": "finetune",
            "policy": str(self.policy),  # may move before a resumption, but not change
            "sha256": sha256(*(value.numpy() for value in policy.state_dict().values())),
            "interface": policy.interface.to_json(),
            "task": self.task,
            "worlds": preset.worlds,
            "reward": self.reward,
            "settings": plain(policy.net.config),
            "reinflow": plain(config),
        }
        env = make_env(self.task, preset.worlds, reward=self.reward, action_kind=world_action_kind(policy),
                       **cameras_for(self.task, [policy]))  # fmt: skip
        try:
            trainer = ReinFlowTrainer(policy, env, config)
            every = trainer.iterations_between_states(self.checkpoint_every)
            if env.snapshot() is None:  # to save ends episodes there, so it belongs to what the run is
                stored["checkpoint_every"] = every
            if every != self.checkpoint_every:
                log.info("%s cannot tell its state: it is saved every %d iterations", self.task, every)
            with Run.create(self.out, stored, resume=self.resume, may_differ=("policy",)) as run:
                with Progress(f"fine-tuning {self.task}", total=trainer.iterations, unit="iterations",
                              show=("success", "env_steps", "kl"), quiet=self.json) as progress:  # fmt: skip
                    done = run_loop(run, trainer, trainer.iterations, checkpoint_every=every, progress=progress)
                result = {
                    "run": str(self.out),
                    "policy": str(run.policy_dir),
                    "task": self.task,
                    "env_steps": trainer.env_steps,
                    "iterations": trainer.iterations,
                    "sigma_max": trainer.actor.noise.config.sigma_max,
                    "calibration": trainer.calibration.to_json() if trainer.calibration else None,
                    "wall_s": wall_profile(
                        self.out,
                        trainer.calibration_wall_s,
                        trainer.calibration.simulation_s if trainer.calibration else 0.0,
                    )
                    | {"total": done["wall_s"]},
                }
                run.finish(result)
        finally:
            env.close()
        return result

    def check_budget(self, execute: int) -> None:
        """Raise `BadInput` if the budget does not pay for fine-tuning a policy that executes `execute` steps."""
        from robolearn.rl.reinflow import iterations_within
        from sim.registry import make_env

        preset = self._preset()
        env = make_env(self.task, preset.worlds)
        try:
            iterations_within(self._config(preset), env, execute)
        finally:
            env.close()

    def _preset(self) -> RlPreset:
        from robolearn.presets import rl_preset

        asked = {name: getattr(self, name) for name in ("env_steps", "worlds", "gamma", "lam")}
        return replace(rl_preset(self.task), **{name: value for name, value in asked.items() if value is not None})

    def _config(self, preset: RlPreset) -> ReinFlowConfig:
        from robolearn.rl.config import ReinFlowConfig
        from robolearn.rl.noise import NoiseConfig

        noise = NoiseConfig(
            steps=self.noise_steps, sigma_max=self.sigma_max, sigma_min=self.sigma_max * NoiseConfig().min_share
        )
        return ReinFlowConfig(
            env_steps=preset.env_steps,
            decisions=self.decisions,
            epochs=self.epochs,
            minibatch=max(2, preset.worlds * self.decisions // 2) if self.minibatch is None else self.minibatch,
            actor_lr=self.actor_lr,
            target_kl=self.target_kl,
            gamma=preset.gamma,
            lam=preset.lam,
            entropy=self.entropy,
            regulariser=self.regulariser,
            regularisation=self.regularisation,
            noise=noise,
            threads=self.threads,
            seed=self.seed,
        )


def wall_profile(run: Path, calibration_s: float, simulation_s: float) -> dict[str, float]:
    """Where the time of fine-tuning went [s], from the run's metrics.

    Args:
      run: the run folder.
      calibration_s: seconds that the calibration of the noise took.
      simulation_s: what the worlds took of it; it counts as simulation, the rest as calibration.
    """
    from robolearn.runs.run import read_metrics

    rows = list(read_metrics(run))
    wall_s: dict[str, float] = {
        part: sum(row.get(f"wall_{part}_s", 0.0) for row in rows) for part in ("simulation", "inference", "update")
    }
    wall_s["simulation"] += simulation_s
    return {**wall_s, "calibration": calibration_s - simulation_s}
