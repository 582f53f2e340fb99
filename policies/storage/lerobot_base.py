"""A policy of LeRobot's as the base of RL: given noise → chunks, by its own sampler, its weights untouched.

    diffusion   chunk = DDIM_K(x_0; c),    c = (state, φ(pictures), environment)     x_0 (B, Tp, Da) given
    SmolVLA     chunk = Euler_K(x_0; c),   c = (state, φ(pictures)), and the words   x_0 (B, Tp, padded) given

`open_base` makes a `ChunkPolicy` of it. φ are its own encoders; of SmolVLA all tokens of a picture. Critics and actors
that learn on it see vectors standardised by the statistics that LeRobot stored, and φ of the pictures, of tokens their
mean. LeRobot's weights are in none of our modules: no optimiser sees them, and a
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
from policies.storage.lerobot_files import PRE, TOLD, PolicyFiles, read_policy, scaled, told_interface
from policies.storage.lerobot_vlm import WORDED, FlowSampler
from robolearn.core import ArraySpec, BadInput, Interface
from robolearn.core.specs import is_image
from robolearn.data.convert.formats.config import scale_of
from robolearn.data.lerobot.features import column, key_of
from robolearn.io.hashes import sha256_folder
from robolearn.io.json_files import read_json

NEEDED = ("control_hz", "embodiment", "action_kind")  # of `TOLD`: what is learned is stored with a whole interface
_STATE, _ENVIRONMENT = "observation.state", "observation.environment_state"


def open_base(path: str, device: str | torch.device = "cpu", words: Callable[[], str] = str) -> ChunkPolicy:
    """The policy in the folder `path` as a base on `device`, for the task in `words` if it takes them. Raises
    `BadInput`: as `load_lerobot_policy`, and where its samples are no function of one observation and of noise, its
    files do not say what its actions mean, or it takes words and there are none."""
    files = read_policy(path)
    _check_steerable(files)
    config, folder = files.net.config, files.folder.resolve()
    horizon = config.chunk_size if files.wants_words else config.horizon
    settings = LeRobotConfig(
        folder=str(folder), sha256=sha256_folder(folder), horizon=int(horizon), execute=int(config.n_action_steps),
        words=words() if files.wants_words else "",
    )  # fmt: skip
    return _base(files, settings).to(device).eval()


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
    net = (LeRobotFlowNet if files.wants_words else LeRobotNet)(files, config, interface)
    return ChunkPolicy(net, LeRobotNormalizer(files, interface), interface)


def _check_steerable(files: PolicyFiles) -> None:
    what, config = f"policy lerobot:{files.folder}", files.net.config
    if not (files.wants_words or hasattr(files.net, "diffusion")):
        expected = f"one whose samples begin with noise: {', '.join(('diffusion', *WORDED))}"
        raise BadInput(f"{what}: type", got=config.type, expected=expected)
    if not files.wants_words and config.noise_scheduler_type != "DDIM":
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
        files.net.eval().requires_grad_(False)
        self._files = files  # a dataclass, so that none of its weights is one of this module's
        self.config, self.encoder = config, self._encoder(interface)
        self.noise_shape: tuple[int, int] = (config.horizon, interface.action.size)

    def _encoder(self, interface: Interface) -> LeRobotEncoder:
        return LeRobotEncoder(self._files, interface)

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
        self.encoded_specs = {encoded_key(key): ArraySpec((self._extent(key),)) for key in sorted(self.images)}
        self.size = sum(self._pooled(key) if key in self.images else seen[key].size for key in self.features)

    def forward(self, observation: Mapping[str, Tensor]) -> Tensor:
        parts = [
            self._pool(self.picture(observation, key)) if key in self.images else components(observation[key])
            for key in self.features
        ]
        return torch.cat(parts, 1)

    def picture(self, observation: Mapping[str, Tensor], key: str) -> Tensor:
        """(B, F) of camera `key`, whose pictures may be encoded already."""
        found = observation.get(encoded_key(key))
        return self.encode_picture(key, observation[key]) if found is None else found

    def encode_picture(self, key: str, frames: Tensor) -> Tensor:
        """Pictures (B, 3, H, W) in [0, 1] → (B, F)."""
        normal = self._files.seen({column(key): frames})[column(key)]
        return self._encoded(key, normal.to(frames.device))

    def _encoded(self, key: str, normal: Tensor) -> Tensor:
        return self._camera(key)(normal)

    def _extent(self, key: str) -> int:
        """F of camera `key`."""
        return self._camera(key).feature_dim

    def _pooled(self, key: str) -> int:
        """Components of it that critics and actors see."""
        return self._extent(key)

    def _pool(self, encoded: Tensor) -> Tensor:
        return encoded

    def _camera(self, key: str) -> Any:
        model = self._files.net.diffusion
        separate = self._files.net.config.use_separate_rgb_encoder_per_camera
        return model.rgb_encoder[self._cameras.index(key)] if separate else model.rgb_encoder


class LeRobotFlowNet(LeRobotNet):
    """A `LeRobotNet` by SmolVLA's sampler, for the task in the words of its configuration."""

    def __init__(self, files: PolicyFiles, config: LeRobotConfig, interface: Interface) -> None:
        self._flow = FlowSampler(files.net)
        super().__init__(files, config, interface)
        self.noise_shape = self._flow.noise_shape
        self._words = files.words(config.words)

    def _encoder(self, interface: Interface) -> LeRobotEncoder:
        return LeRobotFlowEncoder(self._files, interface, self._flow)

    def encode(self, observation: Mapping[str, Tensor]) -> Tensor:
        seen = (self.encoder.picture(observation, key_of(name)) for name in self._flow.cameras)
        return torch.cat([components(observation[key_of(_STATE)]), *seen], 1)

    def sample(self, cond: Tensor, x0: Tensor) -> Tensor:
        """Condition (B, C) and noise (B, Tp, padded) → actions (B, Tp, Da) as LeRobot normalises them."""
        width, cameras = self._flow.token_width, self._flow.cameras
        state, seen = cond.split([cond.shape[1] - (extent := self._seen_extent()), extent], 1)
        tokens = [one.view(len(cond), -1, width) for one in seen.chunk(len(cameras), 1)]
        return self._flow.sample(state, tokens, self._words, x0)

    def _seen_extent(self) -> int:
        return sum(spec.size for spec in self.encoder.encoded_specs.values())


class LeRobotFlowEncoder(LeRobotEncoder):
    """Pictures as SmolVLA's tokens (B, n · D), of which critics and actors see the mean (B, D)."""

    def __init__(self, files: PolicyFiles, interface: Interface, flow: FlowSampler) -> None:
        self._flow = flow
        super().__init__(files, interface)

    def _encoded(self, key: str, normal: Tensor) -> Tensor:
        return self._flow.tokens(column(key), normal).flatten(1)

    def _extent(self, key: str) -> int:
        return self._flow.token_width * self._flow.token_count

    def _pooled(self, key: str) -> int:
        return self._flow.token_width

    def _pool(self, encoded: Tensor) -> Tensor:
        return encoded.unflatten(1, (-1, self._flow.token_width)).mean(1)


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
        seen = self._files.seen({column(key): observation[key] for key in self.vectors})
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
