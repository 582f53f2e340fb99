"""Named settings: what `quickstart` and the defaults of the commands use for each task."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from robolearn.core import look_up
from robolearn.rl.algorithms import ALGORITHMS, OffPolicyConfig, OnPolicyConfig, ReplayConfig, algorithm

WORLDS = 64  # side by side when evaluating
RL_ENV_STEPS = 300_000  # budget of fine-tuning for a task without a preset


@dataclass(frozen=True)
class Preset:
    """One task's way from demonstrations to a reliable policy.

    Attributes:
      episodes: demonstrations.
      quality: of the demonstrator.
      train_steps: gradient steps of imitation.
      env_steps: budget of fine-tuning in control steps.
      rl: settings that depend on the length of the task's episodes, by the names that algorithms have for them;
        longer episodes need more worlds for as many episodes an iteration.
      eval_episodes: of each evaluation.
    """

    episodes: int
    quality: str
    train_steps: int
    env_steps: int = RL_ENV_STEPS
    rl: dict[str, Any] = field(default_factory=dict)
    eval_episodes: int = 400

    @property
    def line(self) -> str:
        """A summary in a line."""
        worlds = self.rl.get("num_envs", 64)
        return (
            f"{self.episodes} {self.quality} demonstrations, {self.train_steps:,} gradient steps, {self.env_steps:,} "
            f"control steps of RL in {worlds} worlds, {self.eval_episodes} episodes of evaluation"
        )


@dataclass(frozen=True)
class Named:
    """Flags of a command that belong together, for ``--config NAME``.

    Attributes:
      command: whose flags they are.
      line: their purpose.
      flags: without their dashes → value.
      also: further commands that have these flags.
    """

    command: str
    line: str
    flags: dict[str, Any]
    also: tuple[str, ...] = ()


PRESETS: dict[str, Preset] = {
    "lift": Preset(episodes=25, quality="narrow", train_steps=1500, env_steps=500_000, rl={"num_envs": 128}),
    "pick_place": Preset(
        episodes=50, quality="narrow", train_steps=6000, env_steps=2_500_000, rl={"num_envs": 128, "lam": 0.95}
    ),
    "peg_insert": Preset(episodes=25, quality="narrow", train_steps=1500, env_steps=800_000),
    "peg_insert_tight": Preset(episodes=25, quality="narrow", train_steps=1500, env_steps=800_000),
}


REINFLOW_PAPER = {
    "algo": "reinflow", "initial-noise": 1, "noise-steps": "all", "sigma-min": 0.08, "sigma-max": 0.14,
    "noise-within": 3, "clip-means": True, "exponent": "mean", "clip": 0.01, "lr-schedule": "cosine",
    "actor-lr": 4.5e-5, "critic-lr": 6.5e-4, "lr-end": 0.444, "epochs": 5, "critic-epochs": 5, "entropy": 0.01,
    "gamma": 0.999, "lam": 0.95, "time-limit": "infinite", "average": 0,
}  # fmt: skip
REINFLOW_SHORT = {
    "algo": "reinflow", "env-steps": 100_000, "worlds": 64, "chunks-per-rollout": 10, "initial-noise": 0,
    "sigma-max": 0.25,
}  # fmt: skip
RLPD_PAPER = {
    "algo": "rlpd", "utd": 20, "actor-every": 20, "temperature": 1, "critics": 10, "width": 256, "depth": 3,
    "batch": 256,
}  # fmt: skip

REPLAY_ENV_STEPS = 40_000  # the same for algorithms that learn from replayed experience
IN_WORLDS: dict[str, Any] = {
    "utd": 0.5, "imitate_own": True, "trust_after": 1000, "proposals": 8, "proposal_noise": 1.0,
}  # fmt: skip
"""Settings of off-policy algorithms where simulated worlds feed them and nobody helps."""
OWN_IN_WORLDS: dict[str, dict[str, Any]] = {"ogpo": {"demo_share": 0.0}, "uni_o4": {"utd": 0.5}}
"""Of algorithms that have settings of their own there: OGPO learns online from what it did alone, as in its paper;
critics of Uni-O4 choose among no proposals."""
OFFLINE = {"uni_o4": 2000}  # updates from data, of algorithms that go online from there


NAMED: dict[str, Named] = {
    "reinflow-paper": Named(
        "finetune",
        "ReinFlow as in its paper: every denoising step is noised, by a given range, with its learning rates and clip",
        REINFLOW_PAPER,
        also=("quickstart", "benchmark rl"),
    ),
    "reinflow-short": Named(
        "finetune",
        "ReinFlow on 100,000 control steps: short rollouts, and noise that is given, for measuring it costs steps",
        REINFLOW_SHORT,
        also=("benchmark rl",),
    ),
    "diffusion": Named(
        "train",
        "a diffusion policy of five denoising steps, which DPPO fine-tunes",
        {"policy": "diffusion", "denoise-steps": 5, "steps": 4000},
    ),
    "dppo": Named("finetune", "DPPO, for a diffusion policy", {"algo": "dppo"}),
    "rlpd-paper": Named(
        "hil learner",
        "RLPD as in its paper for sparse rewards: twenty updates a control step, temperature 1, wider critics",
        RLPD_PAPER,
        also=("hil run", "benchmark hil", "benchmark rl", "finetune"),
    ),
    "groups": Named("finetune", "group-relative: episodes from equal starts, no critic", {"algo": "grpo"}),
}


def preset(task: str) -> Preset:
    """The settings of an embedded task."""
    return look_up("task with a preset", task, PRESETS)


def algorithm_preset(algo: str, task: str, **settings: Any) -> OnPolicyConfig:
    """The settings of `algo` for any task: its defaults, the task's preset, and on top of it `settings`.

    Raises:
      BadInput: there is no such algorithm.
    """
    kind = algorithm(algo, OnPolicyConfig)
    own = PRESETS[task].rl if task in PRESETS else {}
    return kind(**{k: v for k, v in own.items() if k in kind.__dataclass_fields__} | settings)


def tuning_preset(algo: str, task: str) -> OnPolicyConfig | ReplayConfig:
    """The settings of `algo`, on-policy or off-policy, for fine-tuning in simulated worlds.

    Raises:
      BadInput: there is no such algorithm.
    """
    if issubclass(look_up("--algo", algo, ALGORITHMS), OnPolicyConfig):
        return algorithm_preset(algo, task)
    kind = algorithm(algo, OffPolicyConfig)
    own = OWN_IN_WORLDS.get(algo, IN_WORLDS)
    settings = kind(**{k: v for k, v in own.items() if k in kind.__dataclass_fields__})
    return ReplayConfig(updates=OFFLINE.get(algo, 0), algorithm=settings)


def rl_env_steps(task: str, algo: str = "reinflow") -> int:
    """The budget of fine-tuning by `algo` for any task, in control steps."""
    if not issubclass(ALGORITHMS.get(algo, OnPolicyConfig), OnPolicyConfig):
        return REPLAY_ENV_STEPS
    return PRESETS[task].env_steps if task in PRESETS else RL_ENV_STEPS
