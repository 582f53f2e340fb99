"""Policies on disk: a folder with ``config.json`` and ``model.safetensors``; never pickle.

``config.json`` holds the kind, its settings and the interface; the weights file holds network and
normalisation. Each file is replaced atomically, so a checkpoint that is written over keeps being loadable
whatever happens, as long as its settings stay the same.
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save as to_bytes
from torch import Tensor

from policies.kinds import CONFIGS, build_net, config_from_json, config_to_json
from policies.normalize import Normalizer
from policies.policy import ChunkPolicy
from robolearn.core import BadInput, Interface, NonFinite

FORMAT = "robolearn.policy"
VERSION = 1
CONFIG, WEIGHTS = "config.json", "model.safetensors"


def save_policy(policy: ChunkPolicy, folder: str | os.PathLike[str]) -> Path:
    """Write a checkpoint into `folder`, which is made if need be, and return its path.

    Raises:
      NonFinite: a weight is NaN or infinite; nothing is written then.
    """
    folder = Path(folder)
    tensors = {key: value.detach().cpu().contiguous() for key, value in policy.state_dict().items()}
    for key, value in tensors.items():
        if not torch.isfinite(value).all():
            raise NonFinite(f"policy weights {key!r} are not finite; {folder} was left as it is")
    config = {
        "format": FORMAT,
        "version": VERSION,
        "kind": policy.net.name,
        "settings": config_to_json(policy.net.config),
        "interface": policy.interface.to_json(),
    }
    folder.mkdir(parents=True, exist_ok=True)
    _replace(folder / CONFIG, (json.dumps(config, indent=2) + "\n").encode())
    _replace(folder / WEIGHTS, to_bytes(tensors))
    return folder


def load_policy(path: str | os.PathLike[str], device: str | torch.device = "cpu") -> ChunkPolicy:
    """The policy in a checkpoint folder, or in the ``policy/`` folder of a run.

    Raises:
      BadInput: no such folder, a file missing, damaged, or not written by `save_policy`, or weights that are
        NaN. The message names the file.
    """
    folder = policy_folder(path)
    config = _read_config(folder / CONFIG)
    what = f"policy {folder / CONFIG}"
    if config["kind"] not in CONFIGS:
        raise BadInput(f"{what}: kind", got=config["kind"], available=CONFIGS)
    settings = config_from_json(CONFIGS[config["kind"]], config["settings"], what)
    try:
        interface = Interface.from_json(config["interface"])
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise BadInput(f"{what}: interface", got=f"{type(error).__name__}: {error}", expected="a full one") from error
    policy = ChunkPolicy(build_net(settings, interface), Normalizer(interface), interface)
    _load_weights(policy, folder / WEIGHTS)
    return policy.to(device).eval()


def policy_folder(path: str | os.PathLike[str]) -> Path:
    """The checkpoint folder that `path` means: itself, or its ``policy/``.

    Raises:
      BadInput: there is none.
    """
    if os.fspath(path).startswith("lerobot:"):
        raise BadInput(f"policy {path}", got="one of LeRobot's", expected="one that robolearn trained")
    path = Path(path)
    if not path.is_dir():
        raise BadInput(f"policy {path}", got="a file" if path.exists() else "no such folder", expected="a folder")
    for folder in (path / "policy", path):  # a run has a config.json of its own
        if (folder / CONFIG).is_file() and ((folder / WEIGHTS).is_file() or folder != path):
            return folder
    found = sorted(entry.name for entry in path.iterdir())[:8]
    raise BadInput(
        f"policy {path}", got=", ".join(found) or "an empty folder", expected=f"{CONFIG} and {WEIGHTS}, or policy/"
    )


def _read_config(file: Path) -> dict[str, Any]:
    try:
        config = json.loads(file.read_text(encoding="utf-8"))
    except (ValueError, OSError) as error:
        raise BadInput(f"policy {file}", got=f"unreadable ({error})", expected="JSON") from error
    if not isinstance(config, dict) or config.get("format") != FORMAT:
        found = config.get("format", "no format") if isinstance(config, dict) else type(config).__name__
        of_lerobot = isinstance(config, dict) and "input_features" in config
        hint = f"A policy of LeRobot's is named lerobot:{file.parent}" if of_lerobot else ""
        raise BadInput(f"policy {file}", got=found, expected=f'"format": "{FORMAT}"', hint=hint)
    if config.get("version") != VERSION:
        raise BadInput(f"policy {file}: version", got=config.get("version"), expected=VERSION)
    for key in ("kind", "settings", "interface"):
        if key not in config:
            raise BadInput(f"policy {file}", got=f"no {key!r}", expected=f"a {key!r} entry")
    return config


def _load_weights(policy: ChunkPolicy, file: Path) -> None:
    """Fill `policy` from `file`, every tensor accounted for."""
    if not file.is_file():
        raise BadInput(f"policy {file}", got="no such file", expected="the weights")
    tensors: dict[str, Tensor] = {}
    try:
        with safe_open(file, framework="pt", device="cpu") as stored:
            for key in stored.keys():  # noqa: SIM118 - not a mapping
                tensors[key] = stored.get_tensor(key)
    except (SafetensorError, OSError, ValueError) as error:
        raise BadInput(f"policy {file}", got=f"a damaged file ({error})", expected="safetensors") from error
    needed = policy.state_dict()
    if missing := sorted(needed.keys() - tensors.keys()):
        raise BadInput(f"policy {file}", got=f"no tensor {missing[0]!r}", expected="the weights of its config.json")
    if surplus := sorted(tensors.keys() - needed.keys()):
        raise BadInput(f"policy {file}", got=f"a tensor {surplus[0]!r}", expected="the weights of its config.json")
    for key, value in tensors.items():
        if value.shape != needed[key].shape:
            raise BadInput(f"policy {file}: {key}", got=tuple(value.shape), expected=tuple(needed[key].shape))
        if not torch.isfinite(value).all():
            raise BadInput(f"policy {file}: {key}", got="NaN or infinity", expected="finite weights")
    policy.load_state_dict(tensors)


def _replace(file: Path, content: bytes) -> None:
    """Write `file` so that a reader finds the old content or the new, whole."""
    temporary = file.with_name(f".{file.name}.{os.getpid()}.tmp")
    try:
        with temporary.open("wb") as out:
            out.write(content)
            out.flush()
            os.fsync(out.fileno())
        os.replace(temporary, file)
    finally:
        temporary.unlink(missing_ok=True)
