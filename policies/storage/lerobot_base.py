"""LeRobot's diffusion policy as the base of RL: given noise → chunks, by its own sampler, its weights untouched.

    chunk = DDIM_K(x_0; c),   c = (state, φ(pictures), environment)          x_0 (B, Tp, Da) given, φ its own encoders

`open_base` makes a `ChunkPolicy` of it. Critics and actors that learn on it see vectors standardised by the statistics
that LeRobot stored, and φ of the pictures. LeRobot's weights are in none of our modules: no optimiser sees them, and a
checkpoint of what was learned around them has the folder's name and the hash of its files in their place.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors.numpy import load_file
from torch import Tensor, nn

from policies.networks.encoder import components, encoded_key
from policies.normalize import Normalizer
from policies.policy import ChunkPolicy
from policies.settings import LeRobotConfig
from policies.storage.lerobot_policy import PRE, TOLD, PolicyFiles, read_policy, scaled, told_interface
from robolearn.core import ArraySpec, BadInput, Interface
from robolearn.core.specs import is_image
from robolearn.data.convert.formats.config import scale_of
from robolearn.data.lerobot.features import column, key_of
from robolearn.io.hashes import sha256_folder
from robolearn.io.json_files import read_json

NEEDED = ("control_hz", "embodiment", "action_kind")  # of `TOLD`: what is learned is stored with a whole interface
_STATE, _ENVIRONMENT = "observation.state", "observation.environment_state"


def open_base(path: str, device: str | torch.device = "cpu") -> ChunkPolicy:
    """The policy in the folder `path` as a base on `device`. Raises `BadInput`: as `load_lerobot_policy`, and where its
    samples are no function of one observation and of noise, or its files do not say what its actions mean."""
    files = read_policy(path)
    _check_steerable(files)
    config, folder = files.net.config, files.folder.resolve()
    sizes = {"horizon": int(config.horizon), "execute": int(config.n_action_steps)}
    return _base(files, LeRobotConfig(folder=str(folder), sha256=sha256_folder(folder), **sizes)).to(device).eval()


def reopen_base(config: LeRobotConfig, what: str) -> ChunkPolicy:
    """The base that a checkpoint names, on the CPU. Raises `BadInput`: its folder is gone, or is not as it was."""
    folder = Path(config.folder)
    if not folder.is_dir():
        hint = "Put LeRobot's policy back: its weights are not in the checkpoint"
        raise BadInput(
            f"{what}: base {folder}", got="no such folder", expected="the policy that it stands on", hint=hint
        )
    if (found := sha256_folder(folder)) != config.sha256:
        raise BadInput(f"{what}: base {folder}", got=f"other files ({found[:12]})", expected=config.sha256[:12])
    return _base(read_policy(config.folder), config).eval()


def _base(files: PolicyFiles, config: LeRobotConfig) -> ChunkPolicy:
    interface = told_interface(files)
    return ChunkPolicy(LeRobotNet(files, config, interface), LeRobotNormalizer(files, interface), interface)


def _check_steerable(files: PolicyFiles) -> None:
    what, config = f"policy lerobot:{files.folder}", files.net.config
    if not hasattr(files.net, "diffusion"):
        raise BadInput(f"{what}: type", got=config.type, expected="one whose samples begin with noise: diffusion")
    if config.noise_scheduler_type != "DDIM":
        hint = f'The same weights sample by "noise_scheduler_type": "DDIM", "num_inference_steps": 10 in {files.folder}'
        got = f"{config.noise_scheduler_type}, whose every step draws noise"
        raise BadInput(f"{what}: noise_scheduler_type", got=got, expected="DDIM", hint=f"{hint}/config.json")
    if config.n_obs_steps > 1:
        hint = "Critics see one moment: lerobot-train --policy.n_obs_steps=1"
        raise BadInput(f"{what}: n_obs_steps", got=config.n_obs_steps, expected=1, hint=hint)
    if missing := [key for key in NEEDED if key not in files.told]:
        hint = f"jq .robolearn_interface DATA/meta/info.json > {files.folder / TOLD}"
        raise BadInput(
            f"{what}: {TOLD}", got=f"no {', '.join(missing)}", expected="its data set's interface", hint=hint
        )


class LeRobotNet(nn.Module):
    """The part of a `policies.kinds.chunk_net.ChunkNet` that sampling needs, by LeRobot's networks."""

    def __init__(self, files: PolicyFiles, config: LeRobotConfig, interface: Interface) -> None:
        super().__init__()
        self.config, self.encoder = config, LeRobotEncoder(files, interface)
        self.noise_shape = (config.horizon, interface.action.size)
        files.net.eval().requires_grad_(False)
        self._files = files  # a dataclass, so that none of its weights is one of this module's

    @property
    def initial_noise_std(self) -> float:
        """Standard deviation of x_0 when the policy acts."""
        return self.config.initial_noise_std

    def with_config(self, config: LeRobotConfig) -> LeRobotNet:
        """The same weights, sampled with other settings."""
        net = copy.copy(self)
        net.config = config
        return net

    def encode(self, observation: Mapping[str, Tensor]) -> Tensor:
        """Normalised {feature: (B, …)} → condition (B, C)."""
        config = self._files.net.config
        parts = [components(observation[key_of(_STATE)])]
        parts += [self.encoder.picture(observation, key_of(name)) for name in config.image_features]
        if config.env_state_feature:
            parts.append(components(observation[key_of(_ENVIRONMENT)]))
        return torch.cat(parts, 1)

    def sample(self, cond: Tensor, x0: Tensor) -> Tensor:
        """Condition (B, C) and noise (B, Tp, Da) → actions (B, Tp, Da) as LeRobot normalises them."""
        return self._files.net.diffusion.conditional_sample(len(x0), global_cond=cond, noise=x0)

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> LeRobotNet:
        """Moves LeRobot's weights along, which `to` would not find."""
        self._files.net._apply(fn)
        return super()._apply(fn, recurse)


class LeRobotEncoder(nn.Module):
    """Vectors, and pictures by LeRobot's encoders → features (B, size), in the order of their names; see
    `policies.networks.encoder.ObservationEncoder`."""

    def __init__(self, files: PolicyFiles, interface: Interface) -> None:
        super().__init__()
        self._files, seen = files, interface.observation
        self._cameras = [key_of(name) for name in files.net.config.image_features]
        self.features, self.images = tuple(sorted(seen)), frozenset(key for key in seen if is_image(seen[key]))
        sizes = {key: ArraySpec((self._camera(key).feature_dim,)) for key in sorted(self.images)}
        self.encoded_specs = {encoded_key(key): spec for key, spec in sizes.items()}
        self.size = sum(sizes.get(key, seen[key]).size for key in self.features)

    def forward(self, observation: Mapping[str, Tensor]) -> Tensor:
        parts = [
            self.picture(observation, key) if key in self.images else components(observation[key])
            for key in self.features
        ]
        return torch.cat(parts, 1)

    def picture(self, observation: Mapping[str, Tensor], key: str) -> Tensor:
        """(B, F) of camera `key`, whose pictures may be encoded already."""
        found = observation.get(encoded_key(key))
        return self.encode_picture(key, observation[key]) if found is None else found

    def encode_picture(self, key: str, frames: Tensor) -> Tensor:
        """Pictures (B, 3, H, W) in [0, 1] → (B, F)."""
        normal = self._files.pre({column(key): frames})[column(key)]
        return self._camera(key)(normal.to(frames.device))

    def _camera(self, key: str) -> Any:
        model = self._files.net.diffusion
        separate = self._files.net.config.use_separate_rgb_encoder_per_camera
        return model.rgb_encoder[self._cameras.index(key)] if separate else model.rgb_encoder


class LeRobotNormalizer(Normalizer):
    """LeRobot's processors; its statistics are those of `features`."""

    def __init__(self, files: PolicyFiles, interface: Interface) -> None:
        super().__init__(interface)
        self._files, self._scale = files, scale_of(interface)
        self.load_state_dict(Normalizer.from_statistics(interface, statistics(files.folder)).state_dict())

    def features(self, observation: Mapping[str, Tensor]) -> dict[str, Tensor]:
        return super().observation(observation)

    def observation(self, observation: Mapping[str, Tensor]) -> dict[str, Tensor]:
        found = super().observation(observation)
        seen = self._files.pre({column(key): observation[key] for key in self.vectors})
        return found | {key: seen[column(key)].to(self.action_half.device) for key in self.vectors}

    def action_back(self, action: Tensor) -> Tensor:
        return torch.from_numpy(scaled(self._scale, self._files.unnormalised(action))).to(action.device)


def statistics(folder: Path) -> dict[str, dict[str, np.ndarray]]:
    """Feature, or "action" → name → numbers, as a policy's preprocessor stores them."""
    found: dict[str, dict[str, np.ndarray]] = {}
    for step in read_json(folder / PRE, what=f"policy {folder / PRE}")["steps"]:
        for path, value in (load_file(folder / step["state_file"]) if step.get("state_file") else {}).items():
            feature, name = path.rsplit(".", 1)
            found.setdefault(key_of(feature), {})[name] = value
    return found
