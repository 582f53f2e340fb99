"""Flags of the commands, made of the configs of the teleoperators."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import make_dataclass
from typing import Annotated, Any, TypeVar

import tyro

from hardware.node_parameters import parameter_names
from hardware.teleop import TELEOPERATORS, teleop_flags

T = TypeVar("T")


def with_teleop_flags(cls: type[T]) -> type[T]:
    """`cls`, not yet a dataclass, with a field for each flag of `hardware.teleop` that it has not itself.

    For example::

        @dataclass(frozen=True, kw_only=True)
        @with_teleop_flags
        class Record(Command): ...
    """
    for name, flag in teleop_flags().items():
        if name not in cls.__annotations__:
            cls.__annotations__[name] = Annotated[flag.type, tyro.conf.arg(help=flag.help)]
            setattr(cls, name, flag.default)
    return cls


def teleop_values(command: object) -> dict[str, Any]:
    """Flag → its value, of the flags of all teleoperators."""
    return {name: getattr(command, name) for name in teleop_flags()}


def teleop_parameters(kind: type[T]) -> type[T]:
    """`kind`, parameters of a node, with those flags of all teleoperators that it has not itself."""
    own = parameter_names(kind)
    more = [(name, flag.type, flag.default) for name, flag in teleop_flags().items() if name not in own]
    return make_dataclass(kind.__name__, more, bases=(kind,), frozen=True, kw_only=True)


def shows_in_terminal(teleop: str) -> bool:
    """True where the device shows the state of the recording in the terminal, and has no page."""
    config = TELEOPERATORS.get(teleop)
    return config is not None and config.shows_in_terminal


def device_options(teleop: str, values: Mapping[str, Any]) -> dict[str, Any]:
    """Options of the device `teleop`, for `make_device`; `values`: flag → value, those of other devices left out."""
    config = TELEOPERATORS.get(teleop)
    return {} if config is None else {one.name: values[flag] for flag, one in config.flags().items() if flag in values}
