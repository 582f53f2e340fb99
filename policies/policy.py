"""Policies of torch as the `Policy` that worlds and arms meet: numpy observations in, chunks of actions out.

`ChunkPolicy` is a network that imitation trained, with the history that it observes. `FeaturePolicy` has critics or an
actor on one vector of features, and no history. Both draw noise that is reproducible world by world.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from policies.networks.encoder import ObservationEncoder, components, encoded_key
from policies.normalize import Normalizer, unfamiliar
from robolearn.core import ActionChunk, BadInput, Interface, NonFinite, Observation
from robolearn.core.specs import is_goal, is_image

Backend = Callable[[Mapping[str, NDArray], NDArray], NDArray[np.float32]]
"""Features (N, …) as observed and standard normal noise (N, …) → the result of `decide`; see
`policies.storage.backends`."""

BLOCK = 64  # calls whose noise is made at once: a generator per world and call would cost more than the policy


class WorldNoise:
    """Standard normal noise that depends on (seed, world, call) alone, not on the number of worlds or threads.

    Attributes:
      shape: of one world's noise.
      seed: set by `reset`.
      call: number of `draw` calls since. Setting both restores the sequence.
    """

    def __init__(self, shape: tuple[int, ...], seed: int = 0) -> None:
        self.shape = shape
        self.reset(seed)

    def reset(self, seed: int) -> None:
        """Start anew."""
        self.seed, self.call = abs(int(seed)), 0
        self._number, self._block = -1, np.empty((BLOCK, 0, *self.shape), np.float32)

    def draw(self, worlds: int) -> NDArray[np.float32]:
        """(worlds, *shape)."""
        number, row = divmod(self.call, BLOCK)
        if number != self._number:
            self._number, self._block = number, np.empty((BLOCK, 0, *self.shape), np.float32)
        have = self._block.shape[1]
        if have < worlds:
            new = [
                np.random.default_rng((self.seed, world, number)).standard_normal((BLOCK, *self.shape), np.float32)
                for world in range(have, worlds)
            ]
            self._block = np.concatenate((self._block, np.stack(new, axis=1)), axis=1)
        self.call += 1
        return self._block[row, :worlds].copy()


def feature(interface: Interface, observation: Observation, key: str) -> NDArray:
    """(N, …) feature `key` of `observation`: uint8 or float32. Raises `BadInput`: it is missing or has another
    shape."""
    if key not in observation:
        raise BadInput("observation", got=f"no {key!r}", expected=key, available=observation)
    spec, value = interface.observation[key], observation[key]
    if value.shape[1:] != tuple(spec.shape):
        raise BadInput(f"observation {key!r}", got=value.shape, expected=("N", *spec.shape))
    return np.ascontiguousarray(value, dtype=spec.dtype if spec.dtype == "uint8" else np.float32)


class TorchPolicy(nn.Module):
    """Implements `robolearn.core.Policy`; a subclass has `decide`.

    Attributes:
      config: the settings in its config.json.
      normalizer: of observations, and of actions where they are normalised.
      execute_steps: Ta.
      noise: of the samples; world w's noise depends on (seed, w, call) alone.
      backend: computes decisions in the place of `decide`, or None.
      observes_every_step: `observe` is needed inside an executed chunk.
    """

    config: Any
    normalizer: Normalizer
    observes_every_step = False

    def __init__(self, interface: Interface, execute: int, noise: tuple[int, ...]) -> None:
        super().__init__()
        self.interface, self.execute_steps = interface, execute
        self.noise = WorldNoise(noise)
        self.backend: Backend | None = None
        self._decided: tuple[dict[str, NDArray], NDArray[np.float32]] | None = None  # from what `act` decided last

    def decide(self, observation: Mapping[str, Tensor], noise: Tensor) -> Tensor:
        """Features (N, [To,] …) as observed and standard normal noise (N, …) → actions in [-1, 1], (N, Tp, Da) or
        (N, Ta · Da)."""
        raise NotImplementedError

    @property
    def device(self) -> torch.device:
        """Device of the weights."""
        return self.normalizer.action_half.device

    @property
    def observed_steps(self) -> Mapping[str, int]:
        """To of the features that `decide` takes with their history."""
        return {}

    def check_whole(self, what: str) -> None:
        """Raise `BadInput` where its weights do not suffice: those of another maker's policy stay in their folder."""

    def bind(self, offered: Interface) -> None:
        """Nothing is open: the checkpoint states the whole interface."""

    def unfamiliar(self, observation: Observation) -> tuple[str, str]:
        """See `policies.normalize.unfamiliar`."""
        return unfamiliar(self.normalizer, self.interface, observation)

    def reset(self, seed: int) -> None:
        """Start the noise anew and forget all history."""
        self.noise.reset(seed)

    def begin(self, worlds: NDArray[np.bool_]) -> None:
        """Forget the history of the worlds (N,) that are true: a new episode starts there."""

    def observe(self, observation: Observation) -> None:
        """Take the observation of a step at which `act` is not called into the history. Raises `BadInput`: a feature is
        missing or has another shape."""

    @torch.inference_mode()
    def act(self, observation: Observation) -> ActionChunk:
        """(N, Tp, Da) float32 in [-1, 1] for the N worlds of `observation`; a `FeaturePolicy` gives (N, Ta, Da).

        Raises:
          BadInput: a feature is missing or has another shape.
          NonFinite: the observation, or the network on it, gave NaN.
        """
        found = self._history_with(self._features(observation))
        self._decided = found, self.noise.draw(len(next(iter(found.values()))))
        return self._actions(self._compute(*self._decided))

    @torch.inference_mode()
    def warm(self) -> None:
        """Compute the last decision once more without a trace."""
        if self._decided is not None:
            self._compute(*self._decided)

    def _compute(self, features: dict[str, NDArray], noise: NDArray[np.float32]) -> NDArray[np.float32]:
        if self.backend is not None:
            return self.backend(features, noise)
        return self.decide(self._tensors(features), torch.from_numpy(noise).to(self.device)).cpu().numpy()

    def _features(self, observation: Observation) -> dict[str, NDArray]:
        return {key: feature(self.interface, observation, key) for key in self.interface.observation}

    def _tensors(self, features: Mapping[str, NDArray]) -> dict[str, Tensor]:
        return {key: torch.from_numpy(value).to(self.device) for key, value in features.items()}

    def _history_with(self, features: dict[str, NDArray]) -> dict[str, NDArray]:
        """Input of `decide` for the newest `features`."""
        return features

    def _actions(self, actions: NDArray[np.float32]) -> ActionChunk:
        """The result of `decide`, checked, as (N, steps, Da)."""
        chunk = actions.reshape(len(actions), -1, self.interface.action.size)
        if not np.isfinite(chunk).all():
            bad = np.flatnonzero(~np.isfinite(chunk).all(axis=(1, 2)))
            raise NonFinite(f"policy: actions of worlds {bad.tolist()} are not finite")
        return chunk


class ChunkPolicy(TorchPolicy):
    """A network that imitation trained.

    Attributes:
      net: the `policies.kinds.chunk_net.ChunkNet`, on normalised tensors.

    With To > 1 the last To observations of every world are kept, one per control step: `observe` takes those inside
    an executed chunk. `begin` makes worlds forget theirs when their episodes start.
    """

    def __init__(self, net: nn.Module, normalizer: Normalizer, interface: Interface) -> None:
        config: Any = net.config
        super().__init__(interface, config.execute, net.noise_shape)  # type: ignore[arg-type]
        self.net: Any = net
        self.normalizer = normalizer
        self._observe: int = config.observe
        self.observes_every_step = self._observe > 1
        self._history: dict[str, NDArray] = {}
        self._fresh: NDArray[np.bool_] | None = None

    @property
    def config(self) -> Any:
        return self.net.config

    @property
    def observed_steps(self) -> Mapping[str, int]:
        return self.net.encoder.steps

    def with_initial_noise(self, std: float) -> ChunkPolicy:
        """The same weights with another standard deviation of the noise that denoising begins with."""
        return self.sampling(initial_noise_std=std)

    def sampling(self, **settings: Any) -> ChunkPolicy:
        """The same weights of a policy that denoises with other settings of its sampler: `initial_noise_std`, `steps`,
        `guidance`. Raises `BadInput`: settings that do not fit each other or what was trained."""
        net = self.net.with_config(replace(self.net.config, **settings))
        return ChunkPolicy(net, self.normalizer, self.interface).train(self.training)

    def reset(self, seed: int) -> None:
        super().reset(seed)
        self._history, self._fresh = {}, None

    def begin(self, worlds: NDArray[np.bool_]) -> None:
        if self._observe > 1:
            self._fresh = worlds.copy() if self._fresh is None else self._fresh | worlds

    def observe(self, observation: Observation) -> None:
        if self._observe > 1:
            self._history_with(self._features(observation))

    def decide(self, observation: Mapping[str, Tensor], noise: Tensor) -> Tensor:
        return self._sampled(self.net.encode(self.normalizer.observation(observation)), noise)

    def _sampled(self, cond: Tensor, noise: Tensor) -> Tensor:
        return self.normalizer.action_back(self.net.sample(cond, noise * self.net.initial_noise_std))

    @torch.inference_mode()
    def act_samples(self, observation: Observation, count: int) -> NDArray[np.float32]:
        """(N, `count`, Tp, Da): as `act` on each world `count` times in a row, but what is seen is encoded once. Raises
        as `act`."""
        found = self._history_with(self._features(observation))
        worlds = len(next(iter(found.values())))
        noise = self.noise.draw(worlds * count)
        if self.backend is not None:  # its graph has one noise for each observation
            chunks = self.backend({key: np.repeat(value, count, 0) for key, value in found.items()}, noise)
        else:
            cond = self.net.encode(self.normalizer.observation(self._tensors(found))).repeat_interleave(count, 0)
            chunks = self._sampled(cond, torch.from_numpy(noise).to(self.device)).cpu().numpy()
        made = self._actions(chunks)
        return made.reshape(worlds, count, *made.shape[1:])

    def _history_with(self, features: dict[str, NDArray]) -> dict[str, NDArray]:
        """The last To `features` of each world, (N, To, …), oldest first; goals as they are. A fresh world repeats its
        first observation."""
        if self._observe == 1:
            return features
        for key, value in features.items():
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


class FeaturePolicy(TorchPolicy):
    """A policy without memory whose critics or actor take an observation as one vector.

    The `encoder` of its pictures is frozen: wherever observations are taken, those whose pictures are already `encoded`
    do as well.

    Args:
      execute: Ta.
      noise: shape of the noise that `decide` takes for one world.
      encoder: of a policy that observes pictures.

    Attributes:
      components, size: Da, H · Da.
      feature_size: F, length of that vector.

    Raises:
      BadInput: pictures, and no encoder.
    """

    def __init__(
        self, interface: Interface, execute: int, noise: tuple[int, ...] = (), encoder: ObservationEncoder | None = None
    ) -> None:
        super().__init__(interface, execute, noise)
        self._pictures = sorted(key for key, spec in interface.observation.items() if is_image(spec))
        if self._pictures and encoder is None:
            raise BadInput(
                "policy", got=f"pictures ({', '.join(self._pictures)})",
                expected="numbers alone: one that is learned anew has no encoder; proposals and dsrl use the base's",
            )  # fmt: skip
        self.components = interface.action.size
        self.size = execute * self.components
        vectors = sum(spec.size for spec in interface.observation.values())
        self.feature_size = vectors if encoder is None else encoder.size

    @property
    def encoder(self) -> ObservationEncoder:
        """Of the pictures."""
        raise NotImplementedError

    def encoded(self, observation: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """`observation` with the encoding of each picture (B, H, W, c) in its place."""
        out = {key: value for key, value in observation.items() if key not in self._pictures}
        for key in self._pictures:
            if key in observation:
                out[encoded_key(key)] = self.encoder.encode_picture(key, self.normalizer.picture(observation[key]))
        return out

    def encode(self, observation: Mapping[str, Tensor]) -> Tensor:
        """Observations as they are, or `encoded` → features (B, F), normalised."""
        normal = self.normalizer.features(observation)
        if self._pictures:
            return self.encoder(normal)
        return torch.cat([components(normal[key]) for key in sorted(normal)], 1)


class ProposerPolicy(FeaturePolicy):
    """A `FeaturePolicy` around a policy that denoises, whose encoder and statistics it shares. `proposer`: π; it
    observes one step."""

    def __init__(self, proposer: ChunkPolicy, noise: tuple[int, ...] = ()) -> None:
        super().__init__(proposer.interface, proposer.execute_steps, noise, proposer.net.encoder)
        self.proposer = proposer

    def check_whole(self, what: str) -> None:
        if not self.proposer.config.learns:
            got = f"a policy around LeRobot's in {self.proposer.config.folder}"
            raise BadInput(what, got=got, expected="one whose base robolearn trained")

    @property
    def normalizer(self) -> Normalizer:
        return self.proposer.normalizer

    @property
    def encoder(self) -> ObservationEncoder:
        return self.proposer.net.encoder
