"""The algorithms, one page each: and one table of their configs.

Commands, help and presets take what there is from the table. Nothing here loads torch.
"""

from __future__ import annotations

from typing import TypeVar

from robolearn.core import look_up
from robolearn.core.plugins import Table, with_plugins
from robolearn.rl.h2o_settings import H2oConfig
from robolearn.rl.off_policy_settings import DsrlConfig, OffPolicyConfig, ProposalsConfig, ReplayConfig, RlpdConfig
from robolearn.rl.settings import AlgorithmConfig, DppoConfig, GrpoConfig, OnPolicyConfig, ReinFlowConfig, SrpoConfig
from robolearn.rl.student_settings import (
    CalQlConfig,
    FamO2oConfig,
    IqlConfig,
    OgpoConfig,
    ReBracConfig,
    RecapConfig,
    RiqlConfig,
    Ro2oConfig,
    UniO4Config,
)

_SHIPPED: dict[str, type[AlgorithmConfig]] = {
    "reinflow": ReinFlowConfig,
    "dppo": DppoConfig,
    "grpo": GrpoConfig,
    "srpo": SrpoConfig,
    "proposals": ProposalsConfig,
    "rlpd": RlpdConfig,
    "dsrl": DsrlConfig,
    "iql": IqlConfig,
    "riql": RiqlConfig,
    "famo2o": FamO2oConfig,
    "rebrac": ReBracConfig,
    "ro2o": Ro2oConfig,
    "cal_ql": CalQlConfig,
    "recap": RecapConfig,
    "ogpo": OgpoConfig,
    "uni_o4": UniO4Config,
    "h2o": H2oConfig,
}
ALGORITHMS: Table[type[AlgorithmConfig]] = with_plugins(
    "algorithms", _SHIPPED, AlgorithmConfig, called=None, own=("page", "build")
)
Family = TypeVar("Family", bound=AlgorithmConfig)


def algorithms(family: type[Family]) -> dict[str, type[Family]]:
    """Those of the table whose configs belong to `family`: `OnPolicyConfig` or `OffPolicyConfig`."""
    return {name: kind for name, kind in ALGORITHMS.items() if issubclass(kind, family)}


def algorithm(name: str, family: type[Family]) -> type[Family]:
    """The config of ``--algo NAME``; raises `BadInput` where the family has no such algorithm."""
    found = algorithms(family)
    return look_up("--algo", name, found)


def algorithm_name(config: AlgorithmConfig | ReplayConfig) -> str:
    """The name that ``--algo`` has for the algorithm of `config`."""
    kind = type(config.algorithm if isinstance(config, ReplayConfig) else config)
    return next(name for name, one in ALGORITHMS.items() if one is kind)


__all__ = [
    "ALGORITHMS",
    "OffPolicyConfig",
    "OnPolicyConfig",
    "ReplayConfig",
    "algorithm",
    "algorithm_name",
    "algorithms",
]
