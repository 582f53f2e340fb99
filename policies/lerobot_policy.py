"""A policy of LeRobot's (ACT, diffusion) as the `Policy` that worlds and arms meet.

What LeRobot's ``select_action`` does for the worlds of one batch in step, this does world by world, since their
episodes begin at different times: it keeps the last To observations, asks ``predict_action_chunk`` when the actions
of a world have run out, and starts afresh where an episode starts. A policy that looks at one observation is asked
once per n_action_steps; one that looks at several, or blends overlapping chunks (temporal ensembling), every step.

ACT: Zhao et al., *Learning Fine-Grained Bimanual Manipulation with Low-Cost Hardware*, 2023. Diffusion: Chi et al.,
*Diffusion Policy*, 2023.
"""

from __future__ import annotations

import copy
from collections import deque
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from policies.lerobot_files import PolicyFiles, read_policy, told_interface
from policies.policy import feature
from robolearn.core import ActionChunk, Interface, NonFinite, Observation
from robolearn.core.specs import is_image
from robolearn.data.features import column
from robolearn.data.formats.scaling import scale_of

_IMAGES = "observation.images"  # all cameras, in the queues of LeRobot's diffusion policy


def load_lerobot_policy(path: str) -> LeRobotPolicy:
    """The policy in the folder `path`, which LeRobot's ``save_pretrained`` or its training wrote.

    Raises:
      BadInput: no such folder, files missing or damaged, a kind other than those above, steps that are not
        LeRobot's own, or LeRobot is not installed.
    """
    return LeRobotPolicy(read_policy(path))


class LeRobotPolicy:
    """Numpy observations of N worlds → chunks of actions; implements `robolearn.core.Policy`.

    Attributes:
      interface: what the policy sees and commands. Where its files do not say the control rate, the embodiment or
        what an action means, `fit` takes that from the world.
      execute_steps: n_action_steps, or 1 where the policy has to see every step.
    """

    def __init__(self, files: PolicyFiles) -> None:
        self._net, self._pre, self._post, config = files.net, files.pre, files.post, files.net.config
        self._told = files.told
        self.interface = told_interface(files)
        self._scale = scale_of(self.interface)
        self._observe = int(getattr(config, "n_obs_steps", 1))
        self._actions = int(config.n_action_steps)
        self._blends = getattr(config, "temporal_ensemble_coeff", None) is not None
        self._stepwise = self._observe > 1 or self._blends
        self.execute_steps: int = 1 if self._stepwise else self._actions
        self._diffusion = hasattr(self._net, "diffusion")
        if self._diffusion:
            self._noise = _WorldNoise(self._net.diffusion.noise_scheduler)
            self._net.diffusion.noise_scheduler = self._noise
        self.reset(0)

    def fit(self, world: Interface) -> None:
        """Take what the policy's files do not say from the interface of the world that it is to live in."""
        observation = {}
        for key, spec in self.interface.observation.items():
            offered = world.observation.get(key)
            if offered is not None and offered.shape == spec.shape and not spec.names:
                spec = replace(spec, names=offered.names)
            observation[key] = spec
        action = self.interface.action
        if not action.names and action.shape == world.action.shape:
            action = world.action
        self.interface = replace(
            self.interface,
            observation=observation,
            action=action,
            control_hz=self.interface.control_hz if "control_hz" in self._told else world.control_hz,
            embodiment=self.interface.embodiment if "embodiment" in self._told else world.embodiment,
            action_kind=self.interface.action_kind if "action_kind" in self._told else world.action_kind,
        )

    def reset(self, seed: int) -> None:
        """Start the noise anew and forget all history."""
        self._seed = abs(int(seed))
        self._history: dict[str, Tensor] = {}
        self._fresh: NDArray[np.bool_] | None = None
        self._queue = np.zeros((0, self._actions, self.interface.action.size), np.float32)
        self._left = np.zeros(0, np.int64)  # actions of each world's queue that are not executed yet
        self._asked = np.zeros(0, np.int64)  # how often the network was, for each world
        self._blenders: list[Any] = []

    def begin(self, worlds: NDArray[np.bool_]) -> None:
        """Forget the history of the worlds (N,) that are true: a new episode starts there."""
        if len(worlds) == len(self._asked):
            self._fresh = worlds.copy() if self._fresh is None else self._fresh | worlds

    @torch.inference_mode()
    def act(self, observation: Observation) -> ActionChunk:
        """(N, Tp, Da) float32 in [-1, 1] for the N worlds of `observation`.

        Raises:
          BadInput: a feature is missing or has another shape.
          NonFinite: the observation, or the network on it, gave NaN.
        """
        self._remember(self._seen(observation))
        worlds = np.arange(len(self._asked))
        if not self._stepwise:
            return self._ask(worlds)
        empty = np.flatnonzero(self._left == 0)
        if len(empty):
            chunk = self._ask(empty)
            self._queue[empty], self._left[empty] = chunk[:, : self._actions], self._actions
        # What is left of each world's queue; where that is less than others have, its last action again.
        ahead = np.arange(self._left.max())
        rows = np.minimum((self._actions - self._left)[:, None] + ahead, self._actions - 1)
        self._left -= 1
        return np.take_along_axis(self._queue, rows[..., None], axis=1)

    def _seen(self, observation: Observation) -> dict[str, Tensor]:
        """LeRobot's features (N, …), through its own preprocessor; pictures go in as (N, 3, H, W) in [0, 1]."""
        batch = {}
        for key, spec in self.interface.observation.items():
            value = torch.from_numpy(feature(self.interface, observation, key))
            batch[column(key)] = value.permute(0, 3, 1, 2).float() / 255.0 if is_image(spec) else value
        names = list(batch)
        seen = self._pre(batch)
        return {name: seen[name] for name in names}

    def _remember(self, seen: Mapping[str, Tensor]) -> None:
        """Push the newest observation; (N, To, …), oldest first. A fresh world repeats what it sees."""
        count = len(next(iter(seen.values())))
        if count != len(self._asked):
            self.reset(self._seed)
            self._queue = np.zeros((count, *self._queue.shape[1:]), np.float32)
            self._left, self._asked = np.zeros(count, np.int64), np.zeros(count, np.int64)
            self._fresh = np.ones(count, np.bool_)
        fresh = self._fresh if self._fresh is not None else np.zeros(count, np.bool_)
        if self._blends:
            begun = fresh.tolist()
            old = self._blenders or [None] * count
            self._blenders = [self._blender() if b else o for b, o in zip(begun, old, strict=True)]
        for name, value in seen.items():
            repeated = value[:, None].expand(-1, self._observe, *value.shape[1:])
            if name not in self._history:
                self._history[name] = repeated.clone()
                continue
            history = torch.cat((self._history[name][:, 1:], value[:, None]), dim=1)
            history[torch.from_numpy(fresh)] = repeated[torch.from_numpy(fresh)]
            self._history[name] = history
        self._left[fresh] = 0
        self._fresh = None

    def _blender(self) -> Any:
        blender = copy.copy(self._net.temporal_ensembler)
        blender.reset()
        return blender

    def _ask(self, worlds: NDArray[np.intp]) -> ActionChunk:
        """(M, Tp, Da) the network's chunks for some of the worlds, in [-1, 1]."""
        history = {name: value[torch.from_numpy(worlds)] for name, value in self._history.items()}
        if self._diffusion:
            chunk = self._denoised(history, worlds)
        else:
            chunk = self._net.predict_action_chunk({name: value[:, -1] for name, value in history.items()})
        self._asked[worlds] += 1
        if self._blends:
            rows = [self._blenders[w].update(one[None]) for w, one in zip(worlds.tolist(), chunk, strict=True)]
            chunk = torch.stack(rows, dim=0)  # (M, 1, Da)
        flat = self._post(chunk.reshape(-1, chunk.shape[-1]))
        actions = flat.reshape(chunk.shape).cpu().numpy()
        if not np.isfinite(actions).all():
            bad = worlds[~np.isfinite(actions).all(axis=(1, 2))]
            raise NonFinite(f"policy: actions of worlds {bad.tolist()} are not finite")
        if self._scale is not None:
            return self._scale.apply(actions)
        return np.clip(actions, -1.0, 1.0).astype(np.float32)

    def _denoised(self, history: dict[str, Tensor], worlds: NDArray[np.intp]) -> Tensor:
        """LeRobot's diffusion policy reads its own queues; world w's noise depends on (seed, w, call of w) alone."""
        net, config = self._net, self._net.config
        if config.image_features:
            history[_IMAGES] = torch.stack([history[name] for name in config.image_features], dim=2)
        for name in net._queues.keys() & history.keys():
            net._queues[name] = deque(history[name].unbind(1), maxlen=self._observe)
        generators = [torch.Generator().manual_seed(self._seed_of(w)) for w in worlds.tolist()]
        self._noise.generators = generators
        shape = (config.horizon, self.interface.action.size)
        noise = torch.stack([torch.randn(shape, generator=generator) for generator in generators])
        return net.predict_action_chunk(history, noise=noise)

    def _seed_of(self, world: int) -> int:
        state = np.random.SeedSequence((self._seed, world, int(self._asked[world]))).generate_state(1, np.uint64)
        return int(state[0]) >> 1


class _WorldNoise:
    """A noise scheduler of diffusers whose steps draw from one generator per world."""

    def __init__(self, scheduler: Any) -> None:
        self._scheduler = scheduler
        self.generators: list[torch.Generator] = []

    def __getattr__(self, name: str) -> Any:
        return getattr(self._scheduler, name)

    def step(self, output: Tensor, t: Any, sample: Tensor, generator: Any = None) -> Any:
        return self._scheduler.step(output, t, sample, generator=self.generators)
