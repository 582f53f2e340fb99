"""The files of a policy of LeRobot's, checked and opened by LeRobot itself; nothing in them is run.

    config.json  model.safetensors                      the policy
    policy_preprocessor.json  policy_postprocessor.json normalisation, with their .safetensors
    robolearn.json                                      optional: facts that LeRobot does not store

``robolearn.json`` has any of the entries of the ``robolearn_interface`` in a data set's ``meta/info.json`` (all of
them: ``jq .robolearn_interface data/lift/meta/info.json > POLICY/robolearn.json``): the control rate, the embodiment,
what an action means, names of vectors' components, and the scale of the actions.
"""

from __future__ import annotations

import contextlib
import io
from collections.abc import Mapping
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from safetensors import safe_open
from safetensors.numpy import load_file
from torch import Tensor

from policies.storage.lerobot_vlm import WORDED, Words, check_vlm, is_empty
from robolearn.core import ArraySpec, BadInput, Interface, check_choice
from robolearn.core.installation import install_command
from robolearn.core.specs import ACTION_SCALE
from robolearn.data.convert.joint_units import Scale
from robolearn.data.lerobot.features import key_of
from robolearn.io.json_files import read_json

KINDS = ("act", "diffusion", *WORDED)
PI = ("pi0", "pi05")
TOLD, PRE = "robolearn.json", "policy_preprocessor.json"
SMALL = 4096  # components of a tensor
UNIT_TOLERANCE = 0.01  # of actions in [-1, 1] that a recorder rounded
_TOKENIZER, _STATE_WORDS = "tokenizer_processor", "pi05_prepare_state_tokenizer_processor_step"
_CONFIG, _WEIGHTS = "config.json", "model.safetensors"
_POST = "policy_postprocessor.json"
_STATE = "observation.state"
_PRECISIONS = {"F32": torch.float32, "BF16": torch.bfloat16, "F16": torch.float16}  # as safetensors names them


@dataclass(frozen=True)
class PolicyFiles:
    """An opened policy."""

    folder: Path
    net: Any  # LeRobot's policy, on the CPU
    # pre, post: its processors: a batch of observations, and actions (M, Da)
    pre: Any
    post: Any
    told: Mapping[str, Any]  # the declared interface, content of ``robolearn.json``, or nothing

    @property
    def wants_words(self) -> bool:
        """True where it takes the task in words."""
        return getattr(self.net.config, "type", "") in WORDED

    def seen(self, batch: Mapping[str, Tensor]) -> dict[str, Any]:
        """The batch through its preprocessor, without words."""
        if not self.wants_words:
            return self.pre(dict(batch))
        count = len(next(iter(batch.values())))
        return self.pre({_STATE: self._still(count), **batch, "task": [""] * count})

    def words(self, sentence: str) -> Words:
        """The sentence as tokens, where the policy reads the state as words beside that. Raises `BadInput`: it is
        empty."""
        if not sentence.strip():
            raise BadInput(f"policy lerobot:{self.folder}: words", got="nothing", expected="the task in a sentence")
        if self.net.config.type != "pi05":
            found = _tokens(self.pre({_STATE: self._still(1), "task": [sentence]}))
            return lambda state: found
        steps = read_json(self.folder / PRE, what=f"policy {self.folder / PRE}")["steps"]
        first = next(i for i, step in enumerate(steps) if step["registry_name"] == _STATE_WORDS)
        normalised = self.pre[first:]  # what comes after the normalisation
        return lambda state: _tokens(normalised({_STATE: state.cpu(), "task": [sentence] * len(state)}))

    def _still(self, count: int) -> Tensor:
        return torch.zeros(count, *self.net.config.robot_state_feature.shape)

    def unnormalised(self, chunk: Tensor) -> NDArray[np.float32]:
        """(B, Tp, Da) of the network → actions in the policy's units."""
        flat = self.post(chunk.reshape(-1, chunk.shape[-1]).cpu())
        return flat.reshape(chunk.shape).cpu().numpy()


def _tokens(seen: Mapping[str, Any]) -> dict[str, Tensor]:
    return {name: seen[f"observation.language.{name}"] for name in ("tokens", "attention_mask")}


def scaled(scale: Scale | None, actions: NDArray[np.float32]) -> NDArray[np.float32]:
    """Actions in the policy's units → [-1, 1]."""
    return np.clip(actions, -1.0, 1.0).astype(np.float32) if scale is None else scale.apply(actions)


def read_policy(path: str) -> PolicyFiles:
    """Open a LeRobot policy, whose folder is checked before LeRobot opens it, so that nothing in it is run; raises as
    `load_lerobot_policy` says."""
    folder = _folder(path)
    what = f"policy lerobot:{folder}"
    config = read_json(folder / _CONFIG, what=what)
    check_choice(f"{what}: type", config.get("type"), KINDS)
    overrides = {name: _checked_steps(folder, name) for name in (PRE, _POST)}
    told = _told(folder)
    _check_units(folder, told)
    if find_spec("lerobot") is None:
        raise BadInput(
            what, got="no LeRobot in this environment", expected="it", hint=f"Install it: {install_command('lerobot')}"
        )
    if config["type"] in PI and find_spec("lerobot.policies.pi_gemma") is None:
        got = "a LeRobot before 0.5, whose π0 needs a patched transformers that PyPI's release does not bring"
        raise BadInput(what, got=got, expected="LeRobot 0.6, with Python 3.12", hint=install_command("pi"))
    if config.get("use_relative_actions"):
        raise BadInput(f"{what}: use_relative_actions", got="true", expected="false: actions as they are")
    vlm = ""
    if config["type"] in WORDED:
        vlm = check_vlm(config, _tokenizer(folder), what)
        overrides[PRE][_TOKENIZER] = {"tokenizer_name": vlm}
    try:
        with contextlib.redirect_stdout(io.StringIO()):  # LeRobot prints
            net = _net(folder, config["type"], vlm)
            from lerobot.policies.factory import make_pre_post_processors

            pre, post = make_pre_post_processors(
                net.config,
                str(folder),
                preprocessor_overrides=overrides[PRE],
                postprocessor_overrides=overrides[_POST],
            )
    except ImportError as error:
        hint = f"It needs LeRobot 0.4: {install_command('lerobot')}"
        raise BadInput(what, got=f"LeRobot does not import ({_line(error)})", expected="it", hint=hint) from error
    except Exception as error:  # LeRobot, draccus and safetensors raise all sorts
        raise BadInput(what, got=f"one that LeRobot does not open ({_line(error)})") from error
    return PolicyFiles(folder, net, pre, post, told)


def told_interface(files: PolicyFiles) -> Interface:
    """The interface by the policy's features and ``robolearn.json``; what neither says is empty, or 0 Hz. Raises
    `BadInput`: a feature that robolearn has no place for."""
    what, config, told = f"policy lerobot:{files.folder}", files.net.config, files.told
    named = told.get("observation", {})
    observation = {}
    for name, stated in config.input_features.items():
        key, shape = key_of(name), tuple(int(extent) for extent in stated.shape)
        kind = stated.type.name
        if is_empty(name):
            continue
        if kind == "VISUAL":
            observation[key] = ArraySpec((shape[1], shape[2], shape[0]), "uint8")
        elif kind in ("STATE", "ENV"):
            observation[key] = ArraySpec(shape, "float32", _names(named.get(key), shape))
        else:
            raise BadInput(f"{what}: input feature", got=f"{name} ({kind})", expected="vectors and pictures")
    action = config.output_features.get("action")
    if action is None:
        raise BadInput(f"{what}: output features", got=", ".join(config.output_features), expected="action")
    shape = tuple(int(extent) for extent in action.shape)
    try:
        return Interface(
            observation=observation,
            action=ArraySpec(shape, "float32", _names(told.get("action"), shape)),
            control_hz=float(told.get("control_hz", 0.0)),
            embodiment=str(told.get("embodiment", "")),
            action_kind=str(told.get("action_kind", "")),
            extra=dict(told.get("extra", {})),
        )
    except (TypeError, ValueError) as error:
        raise BadInput(f"{what}: {TOLD}", got=f"no valid interface ({error})") from None


def _folder(path: str) -> Path:
    root = Path(path)
    if not path or not root.is_dir():
        got = "a file" if root.is_file() else "no such folder"
        hint = "Of a policy on the Hub, download the folder first"
        raise BadInput(f"policy lerobot:{path}", got=got, expected="a folder", hint=hint)
    for folder in (root, root / "pretrained_model", root / "checkpoints/last/pretrained_model"):
        if (folder / _CONFIG).is_file() and (folder / _WEIGHTS).is_file():
            return folder
    found = ", ".join(sorted(entry.name for entry in root.iterdir())[:8]) or "an empty folder"
    raise BadInput(f"policy lerobot:{path}", got=found, expected=f"{_CONFIG} and {_WEIGHTS}")


def _checked_steps(folder: Path, name: str) -> dict[str, Any]:
    """The overrides for a processor that is to run on the CPU. Raises `BadInput`: it is missing, or a step names a
    class to import instead of one that LeRobot has registered."""
    file = folder / name
    if not file.is_file():
        hint = "LeRobot 0.4 converts older policies: python -m lerobot.processor.migrate_policy_normalization"
        raise BadInput(f"policy lerobot:{folder}", got=f"no {name}", expected="the policy's normalisation", hint=hint)
    steps = read_json(file, what=f"policy {file}").get("steps")
    if not isinstance(steps, list) or not all(isinstance(step, dict) for step in steps):
        raise BadInput(f"policy {file}: steps", got=type(steps).__name__, expected="a list")
    names = [step.get("registry_name") for step in steps]
    for step, registered in zip(steps, names, strict=True):
        if not isinstance(registered, str):
            raise BadInput(f"policy {file}: step", got=step.get("class"), expected="one of LeRobot's registered steps")
        state = step.get("state_file")
        if state is not None and (Path(str(state)).name != state or not (folder / state).is_file()):
            raise BadInput(f"policy {file}: {registered}", got=f"no {state}", expected="that file beside it")
    return {"device_processor": {"device": "cpu"}} if "device_processor" in names else {}


def _check_units(folder: Path, told: Mapping[str, Any]) -> None:
    """Raise `BadInput` where the policy's actions are in units of their own, by the statistics that it was trained
    with, and `TOLD` has no scale for them: cut to [-1, 1] they would be another motion."""
    if ACTION_SCALE in told.get("extra", {}):
        return
    for step in read_json(folder / _POST, what=f"policy {folder / _POST}")["steps"]:
        stats = load_file(folder / step["state_file"]) if step.get("state_file") else {}
        ends = [stats[f"action.{name}"] for name in ("min", "max") if f"action.{name}" in stats]
        if len(ends) == 2 and not np.abs(ends).max() <= 1 + UNIT_TOLERANCE:
            got = f"{ends[0].min():.4g} … {ends[1].max():.4g}, and {TOLD} has no scale"
            hint = f"`dataset import` writes the scale of its set; {TOLD} takes it: extra.{ACTION_SCALE}"
            raise BadInput(f"policy lerobot:{folder}: actions", got=got, expected="[-1, 1]", hint=hint)


def _told(folder: Path) -> dict[str, Any]:
    file = folder / TOLD
    if not file.is_file():
        return {}
    told = read_json(file, what=f"policy {file}")
    known = ("control_hz", "embodiment", "action_kind", "observation", "action", "extra")
    for key, value in told.items():
        check_choice(f"policy {file}: entry", key, known)
        if key in ("observation", "action", "extra") and not isinstance(value, dict):
            raise BadInput(f"policy {file}: {key}", got=type(value).__name__, expected="an object")
    return told


def _names(spec: Any, shape: tuple[int, ...]) -> tuple[str, ...]:
    names = tuple(str(name) for name in spec.get("names") or ()) if isinstance(spec, dict) else ()
    return names if shape == (len(names),) else ()


def _net(folder: Path, kind: str, vlm: str) -> Any:
    from lerobot.configs.policies import PreTrainedConfig
    from lerobot.policies.factory import get_policy_class

    config = PreTrainedConfig.from_pretrained(str(folder), local_files_only=True)
    config.device = "cpu"
    if hasattr(config, "pretrained_backbone_weights"):
        config.pretrained_backbone_weights = None  # the weights are in the folder: nothing to download
    if hasattr(config, "compile_model"):
        config.compile_model = False
    if vlm:
        config.rtc_config = None  # no chunk is continued from the one before it
    if kind == "smolvla":
        config.load_vlm_weights = False  # they are in the folder; of the VLM itself the size is read, and the tokenizer
        config.vlm_model_name = vlm
    net = get_policy_class(kind).from_pretrained(str(folder), config=config, local_files_only=True, strict=True)
    if kind == "smolvla":
        _take_precision(net, folder / _WEIGHTS)
    elif vlm:
        _check_loaded(net, folder / _WEIGHTS)
    return net


def _check_loaded(net: Any, weights: Path) -> None:
    """Raise `ValueError` where the network has other small tensors than the file: LeRobot's π0 keeps the random weights
    that it begins with where it cannot read a file, and prints that."""
    mine = net.state_dict()
    with safe_open(weights, "pt") as file:
        for name in file.keys():  # noqa: SIM118 (not a dict)
            key = name if name in mine else f"model.{name}"
            shape = file.get_slice(name).get_shape()
            if key not in mine or list(mine[key].shape) != list(shape):
                raise ValueError(f"its weights have {name} {shape}, which this LeRobot's network has not")
            if mine[key].numel() <= SMALL and not torch.equal(mine[key], file.get_tensor(name).to(mine[key].dtype)):
                raise ValueError(f"its weights were not taken: {name}")


def _tokenizer(folder: Path) -> str:
    """Name of the tokenizer in the preprocessor of `folder`; empty where it names none."""
    steps = read_json(folder / PRE, what=f"policy {folder / PRE}")["steps"]
    named = (step.get("config", {}).get("tokenizer_name") for step in steps if step["registry_name"] == _TOKENIZER)
    return str(next(named, None) or "")


def _take_precision(net: Any, weights: Path) -> None:
    """Compute with each weight as it is stored: of a SmolVLA that began with a trained VLM most are of 16 bits."""
    with safe_open(weights, "pt") as file:
        stored = {name: file.get_slice(name).get_dtype() for name in file.keys()}  # noqa: SIM118 (not a dict)
    for name, value in net.named_parameters():
        if stored.get(name) in _PRECISIONS:
            value.data = value.data.to(_PRECISIONS[stored[name]])


def _line(error: BaseException) -> str:
    return (str(error).strip() or type(error).__name__).splitlines()[0][:200]
