"""A policy of LeRobot's (ACT, diffusion) as the `Policy` that worlds and arms meet.

What LeRobot's ``select_action`` does for the worlds of one batch in step, this does world by world, since their
episodes begin at different times: it keeps the last To observations of each and starts afresh where an episode
starts. A policy is asked once per n_action_steps, one that blends overlapping chunks (temporal ensembling) every step.
One that looks at several observations is also shown those of the steps between (`observe`).

    config.json  model.safetensors                      the policy
    policy_preprocessor.json  policy_postprocessor.json normalisation, with their .safetensors
    robolearn.json                                      optional: facts that LeRobot does not store

``robolearn.json`` has any of the entries of the ``robolearn_interface`` in a data set's ``meta/info.json`` (all of
them: ``jq .robolearn_interface data/lift/meta/info.json > POLICY/robolearn.json``): the control rate, the embodiment,
what an action means, names of vectors' components, and the scale of the actions.

ACT: Zhao et al., *Learning Fine-Grained Bimanual Manipulation with Low-Cost Hardware*, 2023. Diffusion: Chi et al.,
*Diffusion Policy*, 2023.
"""

from __future__ import annotations

import contextlib
import copy
import io
from collections.abc import Mapping
from dataclasses import dataclass, replace
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from safetensors.numpy import load_file
from torch import Tensor

from policies.policy import feature
from robolearn.core import ActionChunk, ArraySpec, BadInput, Interface, NonFinite, Observation
from robolearn.core.installation import install_command
from robolearn.core.specs import ACTION_SCALE, is_image
from robolearn.data.convert.formats.config import scale_of
from robolearn.data.convert.joint_units import Scale
from robolearn.data.lerobot.features import column, key_of
from robolearn.io.json_files import read_json

KINDS = ("act", "diffusion")
TOLD, PRE = "robolearn.json", "policy_preprocessor.json"
UNIT_TOLERANCE = 0.01  # of actions in [-1, 1] that a recorder rounded
_CONFIG, _WEIGHTS = "config.json", "model.safetensors"
_POST = "policy_postprocessor.json"


@dataclass(frozen=True)
class PolicyFiles:
    """An opened policy."""

    folder: Path
    net: Any  # LeRobot's policy, on the CPU
    # pre, post: its processors: a batch of observations, and actions (M, Da)
    pre: Any
    post: Any
    told: Mapping[str, Any]  # the declared interface, content of ``robolearn.json``, or nothing

    def unnormalised(self, chunk: Tensor) -> NDArray[np.float32]:
        """(B, Tp, Da) of the network → actions in the policy's units."""
        flat = self.post(chunk.reshape(-1, chunk.shape[-1]).cpu())
        return flat.reshape(chunk.shape).cpu().numpy()


def scaled(scale: Scale | None, actions: NDArray[np.float32]) -> NDArray[np.float32]:
    """Actions in the policy's units → [-1, 1]."""
    return np.clip(actions, -1.0, 1.0).astype(np.float32) if scale is None else scale.apply(actions)


def read_policy(path: str) -> PolicyFiles:
    """Open a LeRobot policy, whose folder is checked before LeRobot opens it, so that nothing in it is run; raises as
    `load_lerobot_policy` says."""
    folder = _folder(path)
    what = f"policy lerobot:{folder}"
    config = read_json(folder / _CONFIG, what=what)
    if config.get("type") not in KINDS:
        raise BadInput(f"{what}: type", got=config.get("type"), available=KINDS)
    overrides = {name: _checked_steps(folder, name) for name in (PRE, _POST)}
    told = _told(folder)
    _check_units(folder, told)
    if find_spec("lerobot") is None:
        raise BadInput(
            what, got="no LeRobot in this environment", expected="it", hint=f"Install it: {install_command('lerobot')}"
        )
    try:
        with contextlib.redirect_stdout(io.StringIO()):  # LeRobot prints
            net = _net(folder, config["type"])
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
            got = f"they span {ends[0].min():.4g} … {ends[1].max():.4g}, and {TOLD} has no scale"
            hint = f"`dataset import` writes the scale of its set; {TOLD} takes it: extra.{ACTION_SCALE}"
            raise BadInput(f"policy lerobot:{folder}: actions", got=got, expected="[-1, 1]", hint=hint)


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


_IMAGES = "observation.images"  # all cameras, for LeRobot's diffusion policy


def load_lerobot_policy(path: str, device: str = "cpu") -> LeRobotPolicy:
    """The policy in the folder `path` on `device`, which LeRobot's ``save_pretrained`` or its training wrote. Raises
    `BadInput`: no such folder, files missing or damaged, a kind other than those above, steps that are not LeRobot's
    own, or LeRobot is not installed."""
    return LeRobotPolicy(read_policy(path), device)


class LeRobotPolicy:
    """Numpy observations of N worlds → chunks of actions; implements `robolearn.core.Policy`.

    Attributes:
      interface: of observations and actions. Where its files do not say the control rate, the embodiment or
        what an action means, `bind` takes that from the world.
      execute_steps: n_action_steps.
      observes_every_step: as in `robolearn.core.Policy`; true where the policy looks at several observations.
    """

    def __init__(self, files: PolicyFiles, device: str = "cpu") -> None:
        self._net, self._pre, self._unnormalised, config = files.net, files.pre, files.unnormalised, files.net.config
        self._told = files.told
        self._device = torch.device(device)
        self._net.to(self._device)
        self._net.config.device = device  # LeRobot makes some tensors where its configuration says
        self.interface = told_interface(files)
        self._scale = scale_of(self.interface)
        self._observe = int(getattr(config, "n_obs_steps", 1))
        self._blends = getattr(config, "temporal_ensemble_coeff", None) is not None
        self.execute_steps = int(config.n_action_steps)
        self.observes_every_step = self._observe > 1
        self._diffusion = hasattr(self._net, "diffusion")
        if self._diffusion:
            self._noise = _WorldNoise(self._net.diffusion.noise_scheduler)
            self._net.diffusion.noise_scheduler = self._noise
        self.reset(0)

    def bind(self, offered: Interface) -> None:
        """Take what the policy's files do not say from the interface of the world that it is to live in."""
        observation = {}
        for key, spec in self.interface.observation.items():
            found = offered.observation.get(key)
            if found is not None and found.shape == spec.shape and not spec.names:
                spec = replace(spec, names=found.names)
            observation[key] = spec
        action = self.interface.action
        if not action.names and action.shape == offered.action.shape:
            action = offered.action
        self.interface = replace(
            self.interface,
            observation=observation,
            action=action,
            control_hz=self.interface.control_hz if "control_hz" in self._told else offered.control_hz,
            embodiment=self.interface.embodiment if "embodiment" in self._told else offered.embodiment,
            action_kind=self.interface.action_kind if "action_kind" in self._told else offered.action_kind,
        )

    def reset(self, seed: int) -> None:
        """Start the noise anew and forget all history."""
        self._seed, self._call = abs(int(seed)), 0
        self._history: dict[str, Tensor] = {}  # LeRobot's feature → (N, To, …), oldest first
        self._fresh: NDArray[np.bool_] | None = None
        self._blenders: list[Any] = []

    def begin(self, worlds: NDArray[np.bool_]) -> None:
        """Forget the history of the worlds (N,) that are true: a new episode starts there."""
        self._fresh = worlds.copy() if self._fresh is None else self._fresh | worlds

    def observe(self, observation: Observation) -> None:
        """Remember the observation of a step at which `act` is not called; raises `BadInput` as `act` does."""
        self._remember(self._seen(observation))

    def act(self, observation: Observation) -> ActionChunk:
        """(N, Tp, Da) float32 in [-1, 1] for the N worlds of `observation`. Raises `BadInput`: a feature is missing or
        has another shape; `NonFinite`: the observation, or the network on it, gave NaN."""
        return self._chunks(observation, 1)

    def act_samples(self, observation: Observation, count: int) -> NDArray[np.float32]:
        """(N, `count`, Tp, Da), as `act` on each world `count` times, but what is seen is encoded once. A policy that
        draws no noise gives one chunk so many times."""
        chunks, worlds = self._chunks(observation, count), len(next(iter(observation.values())))
        many = chunks if self._diffusion else np.repeat(chunks, count, axis=0)
        return many.reshape(worlds, count, *many.shape[1:])

    @torch.inference_mode()
    def _chunks(self, observation: Observation, count: int) -> NDArray[np.float32]:
        """Chunks of `observation`, `count` for each world where noise is drawn."""
        self._remember(self._seen(observation))
        if self._diffusion:
            chunk = self._denoised(dict(self._history), count)
        else:
            chunk = self._net.predict_action_chunk({name: value[:, -1] for name, value in self._history.items()})
        self._call += 1
        if self._blends:
            blended = [blender.update(one[None]) for blender, one in zip(self._blenders, chunk, strict=True)]
            chunk = torch.stack(blended)  # (N, 1, Da)
        actions = self._unnormalised(chunk)
        if not np.isfinite(actions).all():
            bad = np.flatnonzero(~np.isfinite(actions).all(axis=(1, 2)))
            raise NonFinite(f"policy: actions of worlds {bad.tolist()} are not finite")
        return scaled(self._scale, actions)

    def _seen(self, observation: Observation) -> dict[str, Tensor]:
        """LeRobot's features (N, …), through its own preprocessor; pictures go in as (N, 3, H, W) in [0, 1]."""
        batch = {}
        for key, spec in self.interface.observation.items():
            value = torch.from_numpy(feature(self.interface, observation, key))
            batch[column(key)] = value.permute(0, 3, 1, 2).float() / 255.0 if is_image(spec) else value
        names = list(batch)
        seen = self._pre(batch)
        return {name: seen[name].to(self._device) for name in names}

    @torch.inference_mode()
    def _remember(self, seen: Mapping[str, Tensor]) -> None:
        """Push the newest observation. A fresh world repeats what it sees."""
        count = len(next(iter(seen.values())))
        old = next(iter(self._history.values()), None)
        everywhere = old is None or len(old) != count or (self._fresh is not None and len(self._fresh) != count)
        fresh = np.full(count, everywhere) if everywhere or self._fresh is None else self._fresh
        if self._blends:
            kept = [None] * count if everywhere else self._blenders
            self._blenders = [self._blender() if new else old for new, old in zip(fresh, kept, strict=True)]
        for name, value in seen.items():
            repeated = value[:, None].expand(-1, self._observe, *value.shape[1:])
            if everywhere:
                self._history[name] = repeated.clone()
                continue
            history = torch.cat((self._history[name][:, 1:], value[:, None]), dim=1)
            new = torch.from_numpy(fresh)
            history[new] = repeated[new]
            self._history[name] = history
        self._fresh = None

    def _blender(self) -> Any:
        blender = copy.copy(self._net.temporal_ensembler)
        blender.reset()
        return blender

    def _denoised(self, history: dict[str, Tensor], count: int) -> Tensor:
        """(N · count, Ta, Da), as ``generate_actions``; the noise of row r depends on (seed, r, call) alone."""
        model, config = self._net.diffusion, self._net.config
        if config.image_features:
            history[_IMAGES] = torch.stack([history[name] for name in config.image_features], dim=2)
        cond = model._prepare_global_conditioning(history).repeat_interleave(count, 0)
        generators = [self._generator(row) for row in range(len(cond))]
        self._noise.generators = generators
        shape = (config.horizon, self.interface.action.size)
        noise = torch.stack([torch.randn(shape, generator=generator) for generator in generators])
        chunk = model.conditional_sample(len(cond), global_cond=cond, noise=noise.to(self._device))
        return chunk[:, self._observe - 1 : self._observe - 1 + config.n_action_steps]

    def _generator(self, row: int) -> torch.Generator:
        state = np.random.SeedSequence((self._seed, row, self._call)).generate_state(1, np.uint64)
        return torch.Generator().manual_seed(int(state[0]) >> 1)


class _WorldNoise:
    """A noise scheduler of diffusers whose steps draw from one generator per world."""

    def __init__(self, scheduler: Any) -> None:
        self._scheduler = scheduler
        self.generators: list[torch.Generator] = []

    def __getattr__(self, name: str) -> Any:
        return getattr(self._scheduler, name)

    def step(self, output: Tensor, t: Any, sample: Tensor, generator: Any = None) -> Any:
        return self._scheduler.step(output, t, sample, generator=self.generators)
