"""The folder of a LeRobot policy: checked before LeRobot opens it, so that nothing in it is run.

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

from robolearn.core import ArraySpec, BadInput, Interface
from robolearn.data.lerobot.features import key_of
from robolearn.io.json_files import read_json

KINDS = ("act", "diffusion")
INSTALL = "pip install 'robolearn[lerobot]'"
TOLD = "robolearn.json"
_CONFIG, _WEIGHTS = "config.json", "model.safetensors"
_PRE, _POST = "policy_preprocessor.json", "policy_postprocessor.json"


@dataclass(frozen=True)
class PolicyFiles:
    """An opened policy.

    Attributes:
      net: LeRobot's policy, on the CPU.
      pre, post: its processors: a batch of observations, and actions (M, Da).
      told: the declared interface, content of ``robolearn.json``, or nothing.
    """

    folder: Path
    net: Any
    pre: Any
    post: Any
    told: Mapping[str, Any]


def read_policy(path: str) -> PolicyFiles:
    """Open a LeRobot policy; raises as `policies.storage.lerobot_policy.load_lerobot_policy` says."""
    folder = _folder(path)
    what = f"policy lerobot:{folder}"
    config = read_json(folder / _CONFIG, what=what)
    if config.get("type") not in KINDS:
        raise BadInput(f"{what}: type", got=config.get("type"), available=KINDS)
    overrides = {name: _checked_steps(folder, name) for name in (_PRE, _POST)}
    told = _told(folder)
    if find_spec("lerobot") is None:
        raise BadInput(what, got="no LeRobot in this environment", expected="it", hint=f"Install it: {INSTALL}")
    try:
        with contextlib.redirect_stdout(io.StringIO()):  # LeRobot prints
            net = _net(folder, config["type"])
            from lerobot.policies.factory import make_pre_post_processors

            pre, post = make_pre_post_processors(
                net.config,
                str(folder),
                preprocessor_overrides=overrides[_PRE],
                postprocessor_overrides=overrides[_POST],
            )
    except ImportError as error:
        hint = f"It needs LeRobot 0.4: {INSTALL}"
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
    for name, feature in config.input_features.items():
        key, shape = key_of(name), tuple(int(extent) for extent in feature.shape)
        kind = feature.type.name
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


def _told(folder: Path) -> dict[str, Any]:
    file = folder / TOLD
    if not file.is_file():
        return {}
    told = read_json(file, what=f"policy {file}")
    known = ("control_hz", "embodiment", "action_kind", "observation", "action", "extra")
    for key, value in told.items():
        if key not in known:
            raise BadInput(f"policy {file}: entry", got=key, available=known)
        if key in ("observation", "action", "extra") and not isinstance(value, dict):
            raise BadInput(f"policy {file}: {key}", got=type(value).__name__, expected="an object")
    return told


def _names(spec: Any, shape: tuple[int, ...]) -> tuple[str, ...]:
    names = tuple(str(name) for name in spec.get("names") or ()) if isinstance(spec, dict) else ()
    return names if shape == (len(names),) else ()


def _net(folder: Path, kind: str) -> Any:
    from lerobot.configs.policies import PreTrainedConfig
    from lerobot.policies.factory import get_policy_class

    config = PreTrainedConfig.from_pretrained(str(folder), local_files_only=True)
    config.device = "cpu"
    if hasattr(config, "pretrained_backbone_weights"):
        config.pretrained_backbone_weights = None  # the weights are in the folder: nothing to download
    if hasattr(config, "compile_model"):
        config.compile_model = False
    return get_policy_class(kind).from_pretrained(str(folder), config=config, local_files_only=True, strict=True)


def _line(error: BaseException) -> str:
    return (str(error).strip() or type(error).__name__).splitlines()[0][:200]
