"""The exact training state on disk: tensors in safetensors, everything else in JSON, never pickle.

A state is a folder ``state-00000007`` with ``tensors.safetensors`` and ``meta.json``. It is written under another
name, synced and renamed, and only then the one before it is deleted: whenever the process is killed, at least one
whole state is there, and a folder with the right name is always whole. An optimiser is stored as tensors and JSON too.
"""

from __future__ import annotations

import re
import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file
from safetensors.torch import save as to_bytes
from torch import Tensor

from robolearn.core import BadInput
from robolearn.io.atomic import place_folder
from robolearn.io.hashes import sha256, sha256_file
from robolearn.io.json_files import read_json, write_json

TENSORS, META = "tensors.safetensors", "meta.json"
_NAME = re.compile(r"state-(\d{8})")
_BESIDE = ".writing"


@contextmanager
def restoring(folder: Path) -> Iterator[None]:
    """Within, a state of `folder` that does not fit is a `BadInput`."""
    try:
        yield
    except (KeyError, ValueError, TypeError, RuntimeError) as error:
        got = f"one that does not fit ({type(error).__name__}: {error})"
        raise BadInput(f"training state in {folder}", got=got, expected="the state of this run") from error


def save_state(folder: str | Path, tensors: Mapping[str, Tensor], meta: Mapping[str, Any]) -> Path:
    """Write a new state into `folder` and delete the older ones. Returns the new state's folder.

    Args:
      folder: e.g. ``runs/lift/state``; made if need be.
      tensors: name → tensor on any device; stored as they are, bit for bit.
      meta: JSON values (counters, hyperparameters, generator states).
    """
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    beside = folder / _BESIDE
    shutil.rmtree(beside, ignore_errors=True)  # what a kill left behind
    beside.mkdir()
    older = _states(folder)
    place = folder / f"state-{(older[-1][0] if older else 0) + 1:08d}"
    try:
        # Not safetensors' own way to a file: on a full disk that raises an error that is no OSError.
        content = to_bytes(_storable(tensors))
        (beside / TENSORS).write_bytes(content)
        write_json(beside / META, {"sha256": sha256(content), "meta": dict(meta)})
        place_folder(beside, place)
    except OSError:
        shutil.rmtree(beside, ignore_errors=True)  # what it holds of a full disk
        raise
    for _, path in older:
        shutil.rmtree(path, ignore_errors=True)
    return place


def load_latest_state(folder: str | Path) -> tuple[dict[str, Tensor], dict[str, Any]] | None:
    """(tensors on the CPU, meta) of the newest state in `folder`, or None if there is none. Raises `BadInput`: the
    state is damaged."""
    states = _states(Path(folder))
    if not states:
        return None
    path = states[-1][1]
    stored = read_json(path / META, what=f"training state {path}")
    try:
        if sha256_file(path / TENSORS) != stored["sha256"]:
            raise ValueError("the checksum does not match")
        return load_file(path / TENSORS), dict(stored["meta"])
    except (OSError, SafetensorError, ValueError, KeyError, TypeError) as error:
        got, hint = f"a damaged one ({error})", "Restore it from a copy, or start another --out"
        raise BadInput(f"training state {path}", got=got, expected="what save_state wrote", hint=hint) from error


def _states(folder: Path) -> list[tuple[int, Path]]:
    if not folder.is_dir():
        return []
    matches = ((_NAME.fullmatch(path.name), path) for path in folder.iterdir())
    return sorted((int(match[1]), path) for match, path in matches if match)


def _storable(tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    # safetensors stores neither views with gaps nor two names for one memory: those become copies.
    seen: set[int] = set()
    out: dict[str, Tensor] = {}
    for name, tensor in tensors.items():
        flat = tensor.detach().to("cpu").contiguous()
        start = flat.untyped_storage().data_ptr()
        if start in seen or flat.untyped_storage().nbytes() != flat.numel() * flat.element_size():
            flat = flat.clone()
        else:
            seen.add(start)
        out[name] = flat
    return out


def prefixed(prefix: str, tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """`tensors` under ``prefix/``, to keep several groups in one state."""
    return {f"{prefix}/{name}": tensor for name, tensor in tensors.items()}


def unprefixed(prefix: str, tensors: Mapping[str, torch.Tensor]) -> dict[str, Tensor]:
    """The inverse of `prefixed`: the tensors under ``prefix/``, with their own names."""
    start = f"{prefix}/"
    return {name[len(start) :]: tensor for name, tensor in tensors.items() if name.startswith(start)}


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
    """Put what `pack_optimizer` returned back into an `optimizer` over the same parameters. Raises `BadInput`: it
    belongs to an optimiser over other parameters."""
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
                    what, got = f"optimiser state {key!r} of parameter {index}", f"shape {tuple(value.shape)}"
                    raise BadInput(what, got=got, expected=f"{tuple(parameter.shape)}")
