"""The kinds of policy by name: configuration ↔ JSON, configuration → network, JSON → policy."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, TypeVar, get_args, get_type_hints

import torch
from torch import nn

from policies.kinds.act import ActPolicy
from policies.kinds.flow import FlowPolicy
from policies.kinds.gaussian import GaussianPolicy
from policies.kinds.regression import RegressionPolicy
from policies.networks.backbones import load_pretrained, resolved
from policies.normalize import Normalizer
from policies.policy import ChunkPolicy
from policies.settings import (
    BEFORE,
    DENOISING,
    POLICIES,
    RENAMED,
    ActConfig,
    ActorConfig,
    ChosenConfig,
    FlowConfig,
    GaussianConfig,
    PolicyConfig,
    RegressionConfig,
)
from policies.stateless import StatelessPolicy
from policies.wrappers.best_of_n import ChosenPolicy
from policies.wrappers.noise_steered import SteeredPolicy
from robolearn.core import BadInput, Interface
from robolearn.core.specs import is_image

Config = TypeVar("Config")
LearnedPolicy = ChunkPolicy | StatelessPolicy
AROUND: dict[str, tuple[type[ChosenPolicy | SteeredPolicy], type[Any]]] = {
    "chosen": (ChosenPolicy, ChosenConfig),
    "steered": (SteeredPolicy, ActorConfig),
}  # kinds that hold a flow or diffusion policy, the "proposer" of their config.json
GAUSSIAN = "gaussian"


def build_net(config: PolicyConfig, interface: Interface, device: str = "cpu") -> nn.Module:
    """A fresh network on the CPU; its random weights come from torch's global generator there.

    On the device "meta" it has shapes, but no weights.
    """
    with torch.device(device):
        if isinstance(config, FlowConfig):
            return FlowPolicy(config, interface)
        if isinstance(config, RegressionConfig):
            return RegressionPolicy(config, interface)
        if isinstance(config, ActConfig):
            return ActPolicy(config, interface)
        from policies.kinds.diffusion import DiffusionPolicy  # diffusers takes seconds to import

        return DiffusionPolicy(config, interface)


def fresh_net(config: PolicyConfig, interface: Interface) -> nn.Module:
    """As `build_net`, and encoders begin with the pretrained weights that the configuration names.

    The configuration of the network says itself what a backbone is built from, and names no folder any more.

    Raises:
      BadInput: a package or a folder is missing, or does not fit; or an encoder is chosen where there are no pictures.
    """
    encoder = config.network.encoder
    shapes = [spec.shape for spec in interface.observation.values() if is_image(spec)]
    if not shapes:
        encoder.check_seen(interface.observation)
    crop = encoder.random_crop
    sizes = {(crop or height, crop or width) for height, width, _ in shapes}
    network = replace(config.network, encoder=resolved(encoder, sizes))
    net: Any = build_net(replace(config, network=network), interface)
    load_pretrained(net.encoder.cameras, encoder)
    return net


def kind_to_json(policy: LearnedPolicy) -> dict[str, Any]:
    """Kind and settings of a policy, as they stand in its config.json."""
    if isinstance(policy, ChunkPolicy):
        return {"kind": policy.net.name, "settings": config_to_json(policy.net.config)}
    settings = config_to_json(policy.config)
    if isinstance(policy, GaussianPolicy):
        return {"kind": GAUSSIAN, "settings": settings}
    assert isinstance(policy, ChosenPolicy | SteeredPolicy)
    kind = next(name for name, (cls, _) in AROUND.items() if isinstance(policy, cls))
    return {"kind": kind, "settings": settings, "proposer": kind_to_json(policy.proposer)}


def build_policy(data: Mapping[str, Any], interface: Interface, what: str, device: str = "cpu") -> LearnedPolicy:
    """A fresh policy of the kind and settings that `kind_to_json` wrote; see `build_net` for `device`.

    Args:
      what: where `data` comes from, for messages.

    Raises:
      BadInput: an unknown kind, or settings that it does not have.
    """
    if not isinstance(data, Mapping):
        raise BadInput(f"{what}: proposer", got=type(data).__name__, expected="an object with kind and settings")
    kind, settings = data.get("kind"), data.get("settings")
    if kind in AROUND:
        cls, config = AROUND[kind]
        proposer = build_policy(data.get("proposer", {}), interface, what, device)
        if not isinstance(proposer, ChunkPolicy) or proposer.net.name not in DENOISING:
            raise BadInput(f"{what}: proposer", got=data["proposer"]["kind"], available=DENOISING)
        with torch.device(device):
            return cls(proposer, config_from_json(config, settings, what))
    if kind == GAUSSIAN:
        with torch.device(device):
            return GaussianPolicy(Normalizer(interface), interface, config_from_json(GaussianConfig, settings, what))
    if kind not in POLICIES:
        raise BadInput(f"{what}: kind", got=kind, available=[*POLICIES, *AROUND, GAUSSIAN])
    net = build_net(config_from_json(POLICIES[kind], settings, what), interface, device)
    with torch.device(device):
        return ChunkPolicy(net, Normalizer(interface), interface)


def config_to_json(config: Any) -> dict[str, Any]:
    """A frozen dataclass → plain dict, nested ones included."""
    return dataclasses.asdict(config)


def config_from_json(cls: type[Config], data: Any, what: str) -> Config:
    """The inverse of `config_to_json` for a dataclass whose fields all have defaults.

    Raises:
      BadInput: an unknown field, or a value of another type than the default's; where that is None, than the field's.
    """
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
