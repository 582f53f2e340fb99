"""The kinds of policy by name: configuration ↔ JSON, and configuration → network."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any, TypeVar

import torch
from torch import nn

from policies.flow import FlowPolicy
from policies.settings import BEFORE, RENAMED, FlowConfig, PolicyConfig
from robolearn.core import BadInput, Interface

Config = TypeVar("Config")


def build_net(config: PolicyConfig, interface: Interface, device: str = "cpu") -> nn.Module:
    """A fresh network on the CPU; its random weights come from torch's global generator there.

    On the device "meta" it has shapes, but no weights.
    """
    with torch.device(device):
        if isinstance(config, FlowConfig):
            return FlowPolicy(config, interface)
        from policies.diffusion import DiffusionPolicy  # diffusers takes seconds to import

        return DiffusionPolicy(config, interface)


def config_to_json(config: Any) -> dict[str, Any]:
    """A frozen dataclass → plain dict, nested ones included."""
    return dataclasses.asdict(config)


def config_from_json(cls: type[Config], data: Any, what: str) -> Config:
    """The inverse of `config_to_json` for a dataclass whose fields all have defaults.

    Raises:
      BadInput: an unknown field, or a value of another type than the default's.
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
        if type(value) is not type(wanted):
            raise BadInput(f"{what}: setting {key!r}", got=repr(value), expected=type(wanted).__name__)
        values[key] = value
    return cls(**values)
