"""Policies on disk: a folder with ``config.json`` and ``model.safetensors``; never pickle.

``config.json`` holds the kind, its settings and the interface; the weights file holds network and
normalisation. Each file is replaced atomically, so a checkpoint that is written over keeps being loadable
whatever happens, as long as its settings stay the same.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save as to_bytes
from torch import Tensor, nn

from policies.policy import ChunkPolicy, TorchPolicy
from policies.registry import build_policy, kind_to_json
from policies.settings import POLICIES
from policies.storage.config_file import CONFIG, FORMAT, VERSION, WEIGHTS, interface_of, policy_folder, read_config
from robolearn.core import BadInput, NonFinite
from robolearn.io.atomic import write_bytes, write_text

_OF_CONFIG = "the weights of its config.json"


def save_policy(policy: TorchPolicy, folder: str | os.PathLike[str]) -> Path:
    """Write a checkpoint into `folder`, which is made if need be, and return its path. Raises `NonFinite`: a weight is
    NaN or infinite; nothing is written then."""
    config = {"format": FORMAT, "version": VERSION, **kind_to_json(policy), "interface": policy.interface.to_json()}
    return write_checkpoint(policy, config, folder, "policy")


def write_checkpoint(model: nn.Module, config: Mapping[str, Any], folder: str | os.PathLike[str], what: str) -> Path:
    """Write the `config` and the weights of a model, `what` in messages; as `save_policy`."""
    folder = Path(folder)
    tensors = {key: value.detach().cpu().contiguous() for key, value in model.state_dict().items()}
    for key, value in tensors.items():
        if not torch.isfinite(value).all():
            raise NonFinite(f"{what} weights {key!r} are not finite; {folder} was left as it is")
    folder.mkdir(parents=True, exist_ok=True)
    write_text(folder / CONFIG, json.dumps(config, indent=2) + "\n")
    write_bytes(folder / WEIGHTS, to_bytes(tensors))
    return folder


def load_policy(path: str | os.PathLike[str], device: str | torch.device = "cpu") -> TorchPolicy:
    """The policy in a checkpoint folder, or in the ``policy/`` folder of a run. Raises `BadInput`: no such folder, a
    file missing, damaged, or not written by `save_policy`, or weights that are NaN. The message names the file."""
    folder = policy_folder(path)
    config = read_config(folder / CONFIG)
    what = f"policy {folder / CONFIG}"
    interface = interface_of(config, folder / CONFIG)
    # A config.json may ask for more than the memory holds: its weights are there first.
    shapes = build_policy(config, interface, what, "meta").state_dict()
    tensors = _read_weights(folder / WEIGHTS, {key: tuple(value.shape) for key, value in shapes.items()})
    policy = build_policy(config, interface, what)
    policy.load_state_dict(tensors)
    return policy.to(device).eval()


def load_chunk_policy(path: str | os.PathLike[str], device: str | torch.device = "cpu") -> ChunkPolicy:
    """The policy of imitation in a folder, of any kind in `POLICIES`; see `load_policy`. Raises `BadInput`: also where
    it is of another kind."""
    policy = load_policy(path, device)
    if not isinstance(policy, ChunkPolicy):
        raise BadInput(f"policy {path}: kind", got=kind_to_json(policy)["kind"], available=POLICIES)
    return policy


def _read_weights(file: Path, needed: Mapping[str, tuple[int, ...]]) -> dict[str, Tensor]:
    """The tensors in `file`, whose names and shapes are those of `needed`."""
    if not file.is_file():
        raise BadInput(f"policy {file}", got="no such file", expected="the weights")
    try:
        with safe_open(file, framework="pt", device="cpu") as stored:
            found = {key: tuple(stored.get_slice(key).get_shape()) for key in stored.keys()}  # noqa: SIM118
            if missing := sorted(needed.keys() - found.keys()):
                raise BadInput(f"policy {file}", got=f"no tensor {missing[0]!r}", expected=_OF_CONFIG)
            if surplus := sorted(found.keys() - needed.keys()):
                raise BadInput(f"policy {file}", got=f"a tensor {surplus[0]!r}", expected=_OF_CONFIG)
            for key, shape in found.items():
                if shape != needed[key]:
                    raise BadInput(f"policy {file}: {key}", got=shape, expected=needed[key])
            tensors = {key: stored.get_tensor(key) for key in found}
    except (SafetensorError, OSError, ValueError) as error:
        raise BadInput(f"policy {file}", got=f"a damaged file ({error})", expected="safetensors") from error
    for key, value in tensors.items():
        if not torch.isfinite(value).all():
            raise BadInput(f"policy {file}: {key}", got="NaN or infinity", expected="finite weights")
    return tensors
