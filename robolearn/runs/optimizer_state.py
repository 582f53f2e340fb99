"""The state of an optimiser as plain tensors and JSON, exactly, so that storing it needs no pickle."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from robolearn.core import BadInput


def pack_optimizer(optimizer: torch.optim.Optimizer) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """(tensors, JSON values) of ``optimizer.state_dict()``.

    Tensors are named ``<parameter>/<entry>``, e.g. ``0/exp_avg``, and ``group/<group>/<entry>``.
    """
    state = optimizer.state_dict()
    tensors: dict[str, Tensor] = {}
    values: dict[str, dict[str, Any]] = {}
    for index, entries in state["state"].items():
        values[str(index)] = _split(entries, f"{index}/", tensors)
    groups = [_split(group, f"group/{i}/", tensors) for i, group in enumerate(state["param_groups"])]
    return tensors, {"state": values, "groups": groups}


def unpack_optimizer(optimizer: torch.optim.Optimizer, tensors: Mapping[str, Tensor], meta: Mapping[str, Any]) -> None:
    """Put what `pack_optimizer` returned back into an `optimizer` over the same parameters.

    Raises:
      BadInput: it belongs to an optimiser over other parameters.
    """
    present = optimizer.state_dict()["param_groups"]
    if len(meta["groups"]) != len(present):
        raise BadInput("optimiser state", got=f"{len(meta['groups'])} groups", expected=f"{len(present)}")
    groups = [_like(new, old) for new, old in zip(meta["groups"], present, strict=True)]
    state: dict[int, dict[str, Any]] = {int(index): dict(entries) for index, entries in meta["state"].items()}
    for name, tensor in tensors.items():
        owner, key = name.rsplit("/", 1)
        if owner.startswith("group/"):
            groups[int(owner.removeprefix("group/"))][key] = tensor
        else:
            state.setdefault(int(owner), {})[key] = tensor
    _check_shapes(optimizer, groups, state)
    try:
        optimizer.load_state_dict({"state": state, "param_groups": groups})
    except (ValueError, KeyError) as error:
        raise BadInput("optimiser state", got=str(error), expected="one over the same parameters") from error


def _split(entries: Mapping[str, Any], prefix: str, tensors: dict[str, Tensor]) -> dict[str, Any]:
    values: dict[str, Any] = {}
    for key, value in entries.items():
        if isinstance(value, Tensor):
            tensors[prefix + key] = value
        else:
            values[key] = value
    return values


def _like(new: Mapping[str, Any], old: Mapping[str, Any]) -> dict[str, Any]:
    # JSON has no tuples, and torch distinguishes (0.9, 0.999) from [0.9, 0.999].
    return {k: tuple(v) if isinstance(v, list) and isinstance(old.get(k), tuple) else v for k, v in new.items()}


def _check_shapes(
    optimizer: torch.optim.Optimizer, groups: list[dict[str, Any]], state: Mapping[int, Mapping[str, Any]]
) -> None:
    # torch itself only compares the number of parameters, and would fail in the middle of a later step.
    for group, packed in zip(optimizer.param_groups, groups, strict=True):
        for parameter, index in zip(group["params"], packed["params"], strict=False):
            for key, value in state.get(index, {}).items():
                if isinstance(value, Tensor) and value.ndim and value.shape != parameter.shape:
                    raise BadInput(
                        f"optimiser state {key!r} of parameter {index}",
                        got=f"shape {tuple(value.shape)}",
                        expected=f"{tuple(parameter.shape)}",
                    )
