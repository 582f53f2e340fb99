"""The algorithms, one page each, and the seam that the runner drives them by."""

from __future__ import annotations

from typing import Any, Protocol

from torch import Tensor

from policies.policy import ChunkPolicy
from robolearn.core import Interface, Observation
from robolearn.rl.buffer import Batch, Scale
from robolearn.rl.calibrate import Calibration
from robolearn.rl.settings import AlgorithmConfig, DppoConfig, GrpoConfig
from robolearn.rollout import Decision, Engine


class Algorithm(Protocol):
    """What learns.

    Attributes:
      config: its settings.
      quota: of a rollout.
      scale: of its rewards.
      calibration: what `prepare` measured, if it did.
    """

    config: Any
    quota: Any  # a robolearn.rollout.quotas.Quota
    scale: Scale
    calibration: Calibration | None

    def prepare(self, engine: Engine, most: int) -> None:
        """Before the first rollout: measure what is left to choose; the engine's worlds may be moved, by at most
        about `most` control steps."""
        ...

    def begin_iteration(self, progress: float) -> None:
        """Set what follows a schedule, for the share `progress` of the budget in [0, 1]."""
        ...

    def features(self, observation: Observation) -> dict[str, Tensor]:
        """Copies of the features that the policy needs, on its device."""
        ...

    def act(self, observation: dict[str, Tensor]) -> Decision:
        """Features (N, …) as the worlds give them → chunks, and in `aux` what `update` needs."""
        ...

    def update(self, batch: Batch, i: int, progress: float) -> dict[str, float]:
        """Learn from a rollout; returns metrics.

        Args:
          i: iteration, from 0.
          progress: share of the budget that is spent, in [0, 1].
        """
        ...

    def policy(self) -> ChunkPolicy:
        """What is exported; shares its weights with the algorithm."""
        ...

    def begin(self) -> None:
        """All worlds begin new episodes."""
        ...

    def reset_options(self) -> dict[str, Any] | None:
        """What a rollout's worlds are reset with, or None where they go on where they are."""
        ...

    def state(self) -> tuple[dict[str, Tensor], dict[str, Any]]:
        """Everything that the next update depends on."""
        ...

    def load_state(self, tensors: dict[str, Tensor], meta: dict[str, Any]) -> None:
        """Go on as if what `state` returned had just been reached."""
        ...


def make_algorithm(
    policy: ChunkPolicy,
    num_envs: int,
    config: AlgorithmConfig,
    *,
    seed: int,
    infinite: bool,
    offered: Interface | None = None,
) -> Algorithm:
    """The algorithm that `config` is for; `policy`'s network is trained in place, on its device.

    Args:
      seed: of the weights that are new and of the noise.
      infinite: the world's time limit means nothing to the task; see `ActorCriticConfig.time_limit`.
      offered: by the worlds, for a critic that sees something else than the policy.

    Raises:
      BadInput: a policy that the algorithm cannot fine-tune.
    """
    if isinstance(config, GrpoConfig):
        from robolearn.rl.algorithms.grpo import Grpo

        return Grpo(policy, num_envs, config, seed=seed)
    if isinstance(config, DppoConfig):
        from robolearn.rl.algorithms.dppo import Dppo

        return Dppo(policy, num_envs, config, seed=seed, infinite=infinite, offered=offered)
    from robolearn.rl.algorithms.reinflow import ReinFlow

    return ReinFlow(policy, num_envs, config, seed=seed, infinite=infinite, offered=offered)
