"""A policy of LeRobot's (ACT, diffusion, SmolVLA) as the `Policy` that worlds and arms meet.

What LeRobot's ``select_action`` does for the worlds of one batch in step, this does world by world, since their
episodes begin at different times: it keeps the last To observations of each and starts afresh where an episode
starts. A policy is asked once per n_action_steps, one that blends overlapping chunks (temporal ensembling) every step.
One that looks at several observations is also shown those of the steps between (`observe`). SmolVLA is told the task in
words (`set_prompt`) before it acts.

ACT: Zhao et al., *Learning Fine-Grained Bimanual Manipulation with Low-Cost Hardware*, 2023. Diffusion: Chi et al.,
*Diffusion Policy*, 2023. SmolVLA: Shukor et al., *SmolVLA: A Vision-Language-Action Model for Affordable and Efficient
Robotics*, 2025.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from policies.policy import feature
from policies.storage.lerobot_files import PolicyFiles, read_policy, scaled, told_interface
from policies.storage.lerobot_vlm import FlowSampler, Words
from robolearn.core import ActionChunk, BadInput, Interface, NonFinite, Observation
from robolearn.core.specs import is_image
from robolearn.data.convert.formats.config import scale_of
from robolearn.data.lerobot.features import column

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
      wants_words, sentence: whether it takes the task in words, and those that it was told.
    """

    def __init__(self, files: PolicyFiles, device: str = "cpu") -> None:
        self._files, self._net, config = files, files.net, files.net.config
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
        self.wants_words, self.sentence = files.wants_words, ""
        self._words: Words | None = None
        self._flow = FlowSampler(self._net) if self.wants_words else None
        self._draws = self._diffusion or self._flow is not None
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

    def set_prompt(self, sentence: str) -> None:
        """Make `sentence` the task of a policy that `wants_words`. Raises `BadInput`: it is empty."""
        self._words = self._files.words(sentence)
        self.sentence = sentence

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
        many = chunks if self._draws else np.repeat(chunks, count, axis=0)
        return many.reshape(worlds, count, *many.shape[1:])

    @torch.inference_mode()
    def _chunks(self, observation: Observation, count: int) -> NDArray[np.float32]:
        """Chunks of `observation`, `count` for each world where noise is drawn."""
        self._remember(self._seen(observation))
        if self._diffusion:
            chunk = self._denoised(dict(self._history), count)
        elif self._flow is not None:
            chunk = self._flowed(self._flow, count)
        else:
            chunk = self._net.predict_action_chunk({name: value[:, -1] for name, value in self._history.items()})
        self._call += 1
        if self._blends:
            blended = [blender.update(one[None]) for blender, one in zip(self._blenders, chunk, strict=True)]
            chunk = torch.stack(blended)  # (N, 1, Da)
        actions = self._files.unnormalised(chunk)
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
        seen = self._files.seen(batch)
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
        noise, self._noise.generators = self._drawn(len(cond), (config.horizon, self.interface.action.size))
        chunk = model.conditional_sample(len(cond), global_cond=cond, noise=noise)
        return chunk[:, self._observe - 1 : self._observe - 1 + config.n_action_steps]

    def _flowed(self, flow: FlowSampler, count: int) -> Tensor:
        """(N · count, Tp, Da), as ``predict_action_chunk``; the noise of row r depends on (seed, r, call) alone."""
        if self._words is None:
            raise BadInput("words", got="nothing", expected="a sentence before the policy acts")
        seen = {name: value[:, -1] for name, value in self._history.items()}
        tokens = [flow.tokens(name, seen[name]).repeat_interleave(count, 0) for name in flow.cameras]
        state = seen[flow.STATE].repeat_interleave(count, 0)
        return flow.sample(state, tokens, self._words, self._drawn(len(state), flow.noise_shape)[0])

    def _drawn(self, rows: int, shape: tuple[int, ...]) -> tuple[Tensor, list[torch.Generator]]:
        """Noise (rows, *shape), and the generators that go on with it."""
        generators = [self._generator(row) for row in range(rows)]
        noise = torch.stack([torch.randn(shape, generator=generator) for generator in generators])
        return noise.to(self._device), generators

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
