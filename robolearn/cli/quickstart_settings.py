"""The flags of ``robolearn quickstart``, with the defaults of each task."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, Literal

from policies.settings import DENOISING, DenoisingConfig, FlowConfig
from robolearn.cli.choices import DemoQuality, OnPolicyAlgorithm, SimRobot
from robolearn.core import BadInput
from robolearn.core.switches import switch
from robolearn.presets import PRESETS, WORLDS, algorithm_preset, preset
from robolearn.rl.algorithms import OnPolicyConfig
from robolearn.runs.command import Command, peek

_LIFT = PRESETS["lift"]


@dataclass(frozen=True, kw_only=True)
class QuickstartSettings(Command):
    """What a quickstart is asked for."""

    task: str = "lift"
    """A task of ours."""
    robot: SimRobot = "panda"
    """The arm."""
    out: Path = Path("runs/quickstart")
    """Folder for data/, bc/, rl/, perhaps seeing/, report.html and settings.json."""
    seed: int = 0
    """Of everything."""
    demos: DemoQuality = _LIFT.quality
    """Quality of the demonstrations; see robolearn collect --help."""
    episodes: int = _LIFT.episodes
    """Demonstrations."""
    train_steps: int = _LIFT.train_steps
    """Gradient steps of imitation."""
    env_steps: int = _LIFT.env_steps
    """Budget of fine-tuning in control steps."""
    eval_episodes: int = _LIFT.eval_episodes
    """Episodes of each evaluation."""
    policy: str = "flow"
    """The kind of policy: flow or diffusion."""
    policy_settings: DenoisingConfig = field(default_factory=FlowConfig)
    algo: OnPolicyAlgorithm = "reinflow"
    """The algorithm."""
    settings: OnPolicyConfig = field(default_factory=lambda: algorithm_preset("reinflow", "lift"))
    observe: Literal["state", "images"] = "state"
    """images: the tuned policy teaches one that sees by two cameras, which is evaluated and deployed; state: all
    policies know the simulator's truth."""
    distill_steps: int = 2000
    """Gradient steps of the policy that sees."""
    device: str = "auto"
    """Where networks live: auto, cpu, cuda or cuda:<i>."""
    videos: Annotated[bool, switch("videos")] = True
    """Record the worst and the best episode of both policies."""
    deploy_episodes: int = 10
    """Episodes of the deployment at the end: on the simulated arm, where there is one of --robot, over ROS 2, in real
    time; 0: none."""
    resume: bool = False
    """Go on with the quickstart in --out where it was stopped."""

    @property
    def eval_worlds(self) -> int:
        """Worlds side by side of an evaluation: those of `robolearn evaluate`, which otherwise meets other starts."""
        return min(WORLDS, self.eval_episodes)

    @classmethod
    def defaults(cls, args: Sequence[str]) -> dict[str, Any]:
        task, algo = peek(args, "--task", "lift"), peek(args, "--algo", "reinflow")
        policy, own = peek(args, "--policy", "flow"), preset(task)
        if policy not in DENOISING:
            raise BadInput("--policy", got=policy, available=DENOISING)
        return {
            "demos": own.quality,
            "episodes": own.episodes,
            "train_steps": own.train_steps,
            "env_steps": own.env_steps,
            "eval_episodes": own.eval_episodes,
            "policy_settings": DENOISING[policy](),
            "settings": algorithm_preset(algo, task),
        }
