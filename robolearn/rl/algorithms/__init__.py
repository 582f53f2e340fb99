"""The algorithms, one page each: one table of their configs, and the seam that the runner drives them by.

Commands, help and presets take what there is from the table. Nothing here loads torch.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from robolearn.core import BadInput
from robolearn.rl.off_policy_settings import DsrlConfig, OffPolicyConfig, ProposalsConfig, RlpdConfig
from robolearn.rl.settings import AlgorithmConfig, DppoConfig, GrpoConfig, OnPolicyConfig, ReinFlowConfig

if TYPE_CHECKING:
    from torch import Tensor

    from policies.policy import ChunkPolicy
    from robolearn.core import Observation
    from robolearn.rl.buffer import RolloutBatch, Scale
    from robolearn.rl.calibrate import NoiseCalibration
    from robolearn.rollout import Decision, Engine

ALGORITHMS: dict[str, type[AlgorithmConfig]] = {
    "reinflow": ReinFlowConfig,
    "dppo": DppoConfig,
    "grpo": GrpoConfig,
    "proposals": ProposalsConfig,
    "rlpd": RlpdConfig,
    "dsrl": DsrlConfig,
}
Family = TypeVar("Family", bound=AlgorithmConfig)


def algorithms(family: type[Family]) -> dict[str, type[Family]]:
    """Those of the table whose configs belong to `family`: `OnPolicyConfig` or `OffPolicyConfig`."""
    return {name: kind for name, kind in ALGORITHMS.items() if issubclass(kind, family)}


def algorithm(name: str, family: type[Family]) -> type[Family]:
    """The config of ``--algo NAME``; raises `BadInput` where the family has no such algorithm."""
    found = algorithms(family)
    if name not in found:
        raise BadInput("--algo", got=name, available=found)
    return found[name]


def algorithm_name(config: AlgorithmConfig) -> str:
    """The name that ``--algo`` has for the algorithm of `config`."""
    return next(name for name, kind in ALGORITHMS.items() if type(config) is kind)


class Algorithm(Protocol):
    """The seam that the runner drives an on-policy algorithm by.

    Attributes:
      config: its settings.
      quota: of a rollout.
      scale: of its rewards.
      calibration: what `prepare` measured, if it did.
    """

    config: Any
    quota: Any  # a robolearn.rollout.engine.Quota
    scale: Scale
    calibration: NoiseCalibration | None

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

    def update(self, batch: RolloutBatch, i: int, progress: float) -> dict[str, float]:
        """Learn from a rollout; returns metrics.

        Args:
          i: iteration, from 0.
          progress: share of the budget that is spent, in [0, 1].
        """
        ...

    def policy(self) -> ChunkPolicy:
        """The policy that is exported; shares its weights with the algorithm."""
        ...

    def begin(self) -> None:
        """All worlds begin new episodes."""
        ...

    def reset_options(self) -> dict[str, Any] | None:
        """The options that a rollout's worlds are reset with, or None where they go on where they are."""
        ...

    def state(self) -> tuple[dict[str, Tensor], dict[str, Any]]:
        """Everything that the next update depends on."""
        ...

    def load_state(self, tensors: dict[str, Tensor], meta: dict[str, Any]) -> None:
        """Go on as if what `state` returned had just been reached."""
        ...


__all__ = ["ALGORITHMS", "Algorithm", "OffPolicyConfig", "OnPolicyConfig", "algorithm", "algorithm_name", "algorithms"]
