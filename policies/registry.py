"""Policies of any kind: configuration ↔ JSON, configuration → network, JSON → policy."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any, TypeVar, get_args, get_type_hints

import torch

from policies.kinds.gaussian import GaussianConfig, NoiseSteeredConfig
from policies.normalize import Normalizer
from policies.policy import ChunkPolicy, ProposerPolicy, TorchPolicy
from policies.settings import POLICIES, LeRobotConfig, PolicyConfig, denoising_kinds
from policies.wrappers.best_of_n import BestOfNConfig
from robolearn.core import BadInput, Interface
from robolearn.core.plugins import package_of
from robolearn.core.specs import is_image

Config = TypeVar("Config")
RL_POLICIES: dict[str, type[Any]] = {
    config.name: config for config in (BestOfNConfig, NoiseSteeredConfig, GaussianConfig)
}
"""Kinds that RL on replayed transitions makes. `takes_proposer`: around a policy that denoises, the "proposer" of their
config.json."""
RENAMED_KINDS = {"chosen": "best_of_n", "steered": "noise_steered"}  # of checkpoints under another name
RENAMED = {"start_noise": "initial_noise_std"}  # settings in checkpoints that were written under another name
BEFORE = {"spacing": "leading"}  # settings of policies whose checkpoint does not state them


def fresh_net(config: PolicyConfig, interface: Interface) -> Any:
    """As `PolicyConfig.build`, and encoders begin with the pretrained weights that the configuration names.

    The configuration of the network contains the architecture of a backbone, and no folder. Raises `BadInput`: a
    package or a folder is missing, or does not fit; or an encoder is chosen where there are no pictures.
    """
    encoder = config.network.encoder
    shapes = [spec.shape for spec in interface.observation.values() if is_image(spec)]
    if not shapes:
        encoder.check_seen(interface.observation)
    crop = encoder.random_crop
    sizes = {(crop or height, crop or width) for height, width, _ in shapes}
    network = replace(config.network, encoder=encoder.of_kind.resolved(encoder, sizes))
    net = replace(config, network=network).build(interface)
    net.encoder.load_pretrained(encoder)
    return net


def kind_to_json(policy: TorchPolicy) -> dict[str, Any]:
    """Kind and settings of a policy, as they stand in its config.json; of another package's kind, that one, too."""
    found = {"kind": policy.config.name, "settings": config_to_json(policy.config)}
    if package := package_of("policies", policy.config.name):
        found["package"] = package
    return found | {"proposer": kind_to_json(policy.proposer)} if isinstance(policy, ProposerPolicy) else found


def build_policy(data: Mapping[str, Any], interface: Interface, what: str, device: str = "cpu") -> TorchPolicy:
    """A fresh policy of the kind and settings that `kind_to_json` wrote; see `PolicyConfig.build` for `device`. `what`:
    where `data` comes from, for messages. Raises `BadInput`: an unknown kind, or settings that it does not have."""
    if not isinstance(data, Mapping):
        raise BadInput(f"{what}: proposer", got=type(data).__name__, expected="an object with kind and settings")
    stored = str(data.get("kind", "nothing"))
    kind = RENAMED_KINDS.get(stored, stored)
    if kind == LeRobotConfig.name:
        return config_from_json(LeRobotConfig, data.get("settings"), what).reopen(what)
    if kind not in POLICIES | RL_POLICIES:
        raise unknown_kind(data, f"{what}: kind", [*POLICIES, *RL_POLICIES])
    if kind in POLICIES:
        net = config_from_json(POLICIES[kind], data.get("settings"), what).build(interface, device)
        with torch.device(device):
            return ChunkPolicy(net, Normalizer(interface), interface)
    config, proposer = RL_POLICIES[kind], None
    if config.takes_proposer:
        proposer = build_policy(data.get("proposer", {}), interface, what, device)
        if proposer.config.name not in (*denoising_kinds(), LeRobotConfig.name):
            raise BadInput(f"{what}: proposer", got=proposer.config.name, available=denoising_kinds())
    with torch.device(device):
        return config_from_json(config, data.get("settings"), what).build(interface, proposer)


def unknown_kind(data: Mapping[str, Any], what: str, available: Iterable[str]) -> BadInput:
    """The error of a kind that `kind_to_json` wrote and that is not `available` here; `what`: the place of the kind."""
    kind = data.get("kind", "nothing")
    if package := data.get("package"):
        got = f"{kind}, a plug-in of {package}"
        hint = "`robolearn doctor` lists those that are"
        return BadInput(what, got=got, expected="that package, installed", hint=hint)
    return BadInput(what, got=kind, available=available)


def config_to_json(config: Any) -> dict[str, Any]:
    """A frozen dataclass → plain dict, nested ones included."""
    return dataclasses.asdict(config)


def config_from_json(cls: type[Config], data: Any, what: str) -> Config:
    """The inverse of `config_to_json` for a dataclass whose fields all have defaults. Raises `BadInput`: an unknown
    field, or a value of another type than the default's; where that is None, than the field's."""
    if not isinstance(data, Mapping):
        raise BadInput(what, got=type(data).__name__, expected="an object with the policy's settings")
    default = cls()
    known = {f.name: getattr(default, f.name) for f in dataclasses.fields(default)}  # type: ignore[arg-type]
    values: dict[str, Any] = {key: value for key, value in BEFORE.items() if key in known}
    for written, value in data.items():
        key = RENAMED.get(written, written)
        if key not in known:
            raise BadInput(f"{what}: setting", got=key, available=known)
        wanted = known[key]
        if dataclasses.is_dataclass(wanted):
            value = config_from_json(type(wanted), value, what)
        elif isinstance(wanted, tuple) and isinstance(value, list):
            value = tuple(value)
        elif isinstance(wanted, float) and type(value) is int and abs(value) < 2**53:
            value = float(value)
        kinds = (type(wanted),) if wanted is not None else get_args(get_type_hints(cls)[key])
        if type(value) not in kinds:
            expected = " or ".join(kind.__name__ for kind in kinds)
            raise BadInput(f"{what}: setting {key!r}", got=repr(value), expected=expected)
        values[key] = value
    return cls(**values)
