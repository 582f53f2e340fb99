"""`ChunkPolicy`: a network, its normaliser and its interface, as the `Policy` that worlds and arms meet."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from policies.noise import WorldNoise
from policies.normalize import Normalizer
from robolearn.core import ActionChunk, BadInput, Interface, NonFinite, Observation
from robolearn.core.specs import is_goal


class ChunkNet(Protocol):
    """What flow and diffusion policies have in common; see `policies.kinds.flow.FlowPolicy`."""

    name: str
    config: Any
    noise_shape: tuple[int, ...]

    @property
    def initial_noise_std(self) -> float: ...

    def encode(self, observation: Mapping[str, Tensor]) -> Tensor: ...

    def time_grid(self) -> Tensor: ...

    def denoise(self, x: Tensor, k: int, cond: Tensor) -> Tensor: ...

    def sample(self, cond: Tensor, x0: Tensor) -> Tensor: ...

    def loss(
        self,
        observation: Mapping[str, Tensor],
        action: Tensor,
        is_pad: Tensor | None,
        generator: torch.Generator,
        target: Any = None,
    ) -> tuple[Tensor, dict[str, Tensor]]: ...


def feature(interface: Interface, observation: Observation, key: str) -> NDArray:
    """(N, …) feature `key` of `observation`: uint8 or float32.

    Raises:
      BadInput: it is missing or has another shape.
    """
    if key not in observation:
        raise BadInput("observation", got=f"no {key!r}", expected=key, available=observation)
    spec, value = interface.observation[key], observation[key]
    if value.shape[1:] != tuple(spec.shape):
        raise BadInput(f"observation {key!r}", got=value.shape, expected=("N", *spec.shape))
    return np.ascontiguousarray(value, dtype=spec.dtype if spec.dtype == "uint8" else np.float32)


def features(interface: Interface, observation: Observation) -> dict[str, NDArray]:
    """Those of `observation` that `interface` states; raises as `feature`."""
    return {key: feature(interface, observation, key) for key in interface.observation}


Backend = Callable[[Mapping[str, NDArray], NDArray], NDArray[np.float32]]
"""Features (N, …) as observed and standard normal noise (N, …) → what `decide` gives; see
`policies.storage.backends`."""


def compute(policy: Any, observation: Mapping[str, NDArray], noise: NDArray) -> NDArray[np.float32]:
    """What ``policy.decide`` gives for the N worlds of `observation`, by the policy's backend."""
    if policy.backend is not None:
        return policy.backend(observation, noise)
    tensors = {key: torch.from_numpy(value).to(policy.device) for key, value in observation.items()}
    return policy.decide(tensors, torch.from_numpy(noise).to(policy.device)).cpu().numpy()


class ChunkPolicy(nn.Module):
    """Numpy observations of N worlds → chunks of actions; implements `robolearn.core.Policy`.

    Attributes:
      net: the network, on normalised tensors.
      normalizer: between the two.
      interface: what the policy needs to see and what it commands.
      execute_steps: Ta.
      noise: where samples start; world w's noise depends on (seed, w, call) alone.
      backend: computes decisions in the place of `decide`, or None.

    With To > 1 the last To observations of every world are kept, one per control step: `observe` takes those inside
    an executed chunk. `begin` makes worlds forget theirs when their episodes start.
    """

    def __init__(self, net: nn.Module, normalizer: Normalizer, interface: Interface) -> None:
        super().__init__()
        self.net: Any = net  # a ChunkNet; nn.Module and a protocol have no common type
        self.normalizer = normalizer
        self.interface = interface
        self.execute_steps: int = self.net.config.execute
        self.noise = WorldNoise(self.net.noise_shape)
        self.backend: Backend | None = None
        self._observe: int = self.net.config.observe
        self.observes_every_step = self._observe > 1
        self._history: dict[str, NDArray] = {}
        self._fresh: NDArray[np.bool_] | None = None

    def with_initial_noise(self, std: float) -> ChunkPolicy:
        """The same weights with another standard deviation of the noise that denoising begins with."""
        return self.sampling(initial_noise_std=std)

    def sampling(self, **settings: Any) -> ChunkPolicy:
        """The same weights of a flow or diffusion policy with other settings of its sampler: `initial_noise_std`,
        `steps`, `guidance`.

        Raises:
          BadInput: settings that do not fit each other or what was trained.
        """
        net = self.net.with_config(replace(self.net.config, **settings))
        return ChunkPolicy(net, self.normalizer, self.interface).train(self.training)

    @property
    def device(self) -> torch.device:
        """Where the weights are."""
        return self.normalizer.action_half.device

    def bind(self, offered: Interface) -> None:
        """Nothing is open: the checkpoint states the whole interface."""

    def reset(self, seed: int) -> None:
        """Start the noise anew and forget all history."""
        self.noise.reset(seed)
        self._history, self._fresh = {}, None

    def begin(self, worlds: NDArray[np.bool_]) -> None:
        """Forget the history of the worlds (N,) that are true: a new episode starts there."""
        if self._observe > 1:
            self._fresh = worlds.copy() if self._fresh is None else self._fresh | worlds

    def observe(self, observation: Observation) -> None:
        """Take the observation of a step at which `act` is not asked into the history.

        Raises:
          BadInput: a feature is missing or has another shape.
        """
        if self._observe > 1:
            self._remember(features(self.interface, observation))

    @torch.inference_mode()
    def act(self, observation: Observation) -> ActionChunk:
        """(N, Tp, Da) float32 in [-1, 1] for the N worlds of `observation`.

        Raises:
          BadInput: a feature is missing or has another shape.
          NonFinite: the observation, or the network on it, gave NaN.
        """
        needed = features(self.interface, observation)
        if self._observe > 1:
            needed = self._remember(needed)
        actions = compute(self, needed, self.noise.draw(len(next(iter(needed.values())))))
        if not np.isfinite(actions).all():
            bad = np.flatnonzero(~np.isfinite(actions).all(axis=(1, 2)))
            raise NonFinite(f"policy: actions of worlds {bad.tolist()} are not finite")
        return actions

    def decide(self, observation: Mapping[str, Tensor], noise: Tensor) -> Tensor:
        """Features (N, [To,] …) as observed and standard normal noise (N, *noise_shape) → (N, Tp, Da) in [-1, 1]."""
        cond = self.net.encode(self.normalizer.observation(observation))
        return self.normalizer.action_back(self.net.sample(cond, noise * self.net.initial_noise_std))

    def _remember(self, observation: dict[str, NDArray]) -> dict[str, NDArray]:
        """Push the newest observation; (N, To, …), oldest first, goals as they are. A fresh world repeats what it
        sees."""
        for key, value in observation.items():
            if is_goal(key):
                self._history[key] = value
                continue
            old = self._history.get(key)
            if old is None or len(old) != len(value):
                self._history[key] = np.repeat(value[:, None], self._observe, axis=1)
                continue
            history = np.concatenate((old[:, 1:], value[:, None]), axis=1)
            if self._fresh is not None:
                history[self._fresh] = value[self._fresh, None]
            self._history[key] = history
        self._fresh = None
        return self._history
