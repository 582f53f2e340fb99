"""What policies without memory share beyond their networks: features in, noise that is reproducible, a chunk out."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from policies.networks.encoder import ObservationEncoder, seen_key
from policies.noise import WorldNoise
from policies.normalize import Normalizer
from policies.policy import Backend, compute, features
from policies.settings import ActorConfig, CriticsConfig
from robolearn.core import ActionChunk, BadInput, Interface, NonFinite, Observation
from robolearn.core.specs import is_image


class StatelessPolicy(nn.Module):
    """Implements `robolearn.core.Policy`; a kind says what it does in a state, `decide`.

    What is seen is one vector. Of pictures it is what `eyes` makes of them, which do not learn any more: wherever
    features are taken, those that were `looked` at before do as well.

    Args:
      execute: Ta.
      noise: shape of what `decide` draws for one world.
      eyes: the encoder of a policy that sees pictures.

    Attributes:
      config: the settings in its config.json.
      features: F, length of that vector.
      backend: computes decisions in the place of `decide`, or None.

    Raises:
      BadInput: pictures, and no eyes.
    """

    config: CriticsConfig | ActorConfig
    observes_every_step = False

    def __init__(
        self,
        interface: Interface,
        execute: int,
        noise: tuple[int, ...] = (),
        eyes: ObservationEncoder | None = None,
    ) -> None:
        super().__init__()
        self._pictures = sorted(key for key, spec in interface.observation.items() if is_image(spec))
        if self._pictures and eyes is None:
            raise BadInput(
                "policy", got=f"pictures ({', '.join(self._pictures)})",
                expected="numbers alone: one that is learned anew has no encoder; proposals and dsrl use the base's",
            )  # fmt: skip
        self.interface, self.execute_steps = interface, execute
        self.components = interface.action.size
        self.size = execute * self.components
        self.features = sum(spec.size for spec in interface.observation.values()) if eyes is None else eyes.size
        self.noise = WorldNoise(noise)
        self.backend: Backend | None = None

    @property
    def statistics(self) -> Normalizer:
        """Of the observations."""
        raise NotImplementedError

    def decide(self, observation: Mapping[str, Tensor], noise: Tensor) -> Tensor:
        """Features (N, …) as observed and standard normal noise (N, …) → (N, H · Da) in [-1, 1]."""
        raise NotImplementedError

    @property
    def device(self) -> torch.device:
        """Where the weights are."""
        return self.statistics.action_half.device

    @property
    def eyes(self) -> ObservationEncoder:
        """The encoder of its pictures."""
        raise NotImplementedError

    def looked(self, observation: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """`observation` with what the eyes make of each picture (B, H, W, c) in its place."""
        out = {key: value for key, value in observation.items() if key not in self._pictures}
        for key in self._pictures:
            if key in observation:
                out[seen_key(key)] = self.eyes.looked(key, self.statistics.picture(observation[key]))
        return out

    def see(self, observation: Mapping[str, Tensor]) -> Tensor:
        """Features as observed, or looked at → (B, F), normalised."""
        normal = self.statistics.observation(observation)
        if self._pictures:
            return self.eyes(normal)
        return torch.cat([normal[key].flatten(1) for key in sorted(normal)], 1)

    def bind(self, offered: Interface) -> None:
        """Nothing is open: the checkpoint states the whole interface."""

    def reset(self, seed: int) -> None:
        """Start the noise anew."""
        self.noise.reset(seed)

    def begin(self, worlds: NDArray[np.bool_]) -> None:
        """There is no history."""

    def observe(self, observation: Observation) -> None:
        """There is no history."""

    @torch.inference_mode()
    def act(self, observation: Observation) -> ActionChunk:
        """(N, Ta, Da) float32 in [-1, 1] for the N worlds of `observation`.

        Raises:
          BadInput: a feature is missing or has another shape.
          NonFinite: the observation, or a network on it, gave NaN.
        """
        seen = features(self.interface, observation)
        count = len(next(iter(seen.values())))
        return self._actions(torch.from_numpy(compute(self, seen, self.noise.draw(count))))

    def _tensors(self, observation: Observation) -> dict[str, torch.Tensor]:
        seen = features(self.interface, observation)
        return {key: torch.from_numpy(value).to(self.device) for key, value in seen.items()}

    def _actions(self, chunk: Tensor) -> ActionChunk:
        """(N, H · Da) → (N, Ta, Da), which are finite."""
        chunk = chunk.cpu()
        if not torch.isfinite(chunk).all():
            bad = torch.nonzero(~torch.isfinite(chunk).all(1)).flatten().tolist()
            raise NonFinite(f"policy: actions of worlds {bad} are not finite")
        return chunk.view(-1, self.execute_steps, self.components).numpy()
