"""Self-referential rewards for failures (SRPO, Fei et al., 2025), on the groups of GRPO.

A failed episode is worth the more the nearer it came to those of the same rollout that succeeded. With z an episode's
latent, standardised over the rollout, c the centres of the clusters of the successes' latents, d a failure's distance
to the nearest and d̂ that, min–max normalised over the failures,

    R = 1                               success
    R = 0.6 σ(10 (0.5 − d̂))             failure
    R = 0                               where nothing succeeded

and the advantage is that of GRPO, of R in the place of the discounted rewards. Groups whose share of successes lies
outside [0.1, 0.9] are left out before anything else: they are no references either.

Clusters are DBSCAN's with ε = 0.5 and two points at least; with two, those are the connected parts of the graph of
neighbours. Where no two successes are neighbours their mean is the one centre.

SRPO embeds the whole video with a world model: ``--latent vjepa2:<model>``, the cameras' latents side by side
(`robolearn.rewards.vla.world_model`). By default a latent is the mean over the episode's observations of a frame's
features, and those of the last one: for visuomotor policies, of the encoder that our critics have (EfficientNet-Lite0,
its map averaged), otherwise the vectors of the state. Distances are per component, ‖x − y‖ / √D, so that ε means the
same for any number of them. One failure alone is neither the nearest nor the farthest: d̂ = 0.5.
"""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from policies.policy import ChunkPolicy
from robolearn.core import BadInput
from robolearn.core.specs import is_image
from robolearn.rl.algorithms.grpo import Grpo
from robolearn.rl.buffer import RolloutBatch
from robolearn.rl.settings import SrpoConfig

EPSILON, SCALE, STEEPNESS = 0.5, 0.6, 10.0
EDGE = 112  # of the pictures that are encoded [px]


class Srpo(Grpo):
    """See the module's docstring."""

    def __init__(self, policy: ChunkPolicy, config: SrpoConfig, *, seed: int) -> None:
        super().__init__(policy, config, seed=seed)
        seen = policy.interface.observation
        kinds = {
            "pictures": tuple(key for key, spec in seen.items() if is_image(spec)),
            "vectors": tuple(key for key, spec in seen.items() if not is_image(spec)),
        }
        kind, _, model = config.latent.partition(":")
        if kind == "auto":
            kind = "pictures" if kinds["pictures"] else "vectors"
        self.compared = kinds["pictures" if model else kind]
        if not self.compared:
            raise BadInput("--latent", got=kind, expected="what the policy sees", available=seen)
        self.encoder = self.world_model = None
        if model:
            from robolearn.rewards.vla.world_model import WorldModel

            self.world_model = WorldModel(model, "--latent vjepa2:", self.device)
        elif kind == "pictures":
            from robolearn.rewards.networks import FrameEncoder

            self.encoder = FrameEncoder(EDGE)
            self.encoder.load_pretrained()
            self.encoder.to(self.device)

    def returns(self, batch: RolloutBatch) -> tuple[Tensor, dict[str, float]]:
        """(N,) R of each episode; 0 in all of a group that is left out, which so has no advantage."""
        solved = (batch.on_grid(batch.solved.float()).sum(0) > 0).cpu().numpy()
        kept = informative(solved, self.group)
        reward = np.zeros(len(solved))
        reward[kept] = self_referential(self.latents(batch, np.flatnonzero(kept)), solved[kept])
        failed = reward[kept & ~solved]
        metrics = {"groups_kept": float(kept.mean())} | ({"failure_reward": failed.mean()} if len(failed) else {})
        return torch.from_numpy(reward.astype(np.float32)).to(self.device), metrics

    def latents(self, batch: RolloutBatch, worlds: NDArray[np.int64]) -> NDArray[np.float64]:
        """(n, D) of the episodes of `worlds`, each of which plays one."""
        found = []
        for world in worlds:
            rows = batch.grid[:, world][batch.grid[:, world] >= 0]
            first, after = batch.observation, batch.next_observation
            seen = {key: torch.cat([first[key][rows[:1]], after[key][rows]]) for key in self.compared}
            found.append(self.latent(seen).double().numpy())
        return np.stack(found) if found else np.empty((0, 0))

    def latent(self, seen: dict[str, Tensor]) -> Tensor:
        """(D,) of an episode's frames."""
        if self.world_model is not None:
            return torch.cat([self.world_model.latent(video.cpu().numpy()) for video in seen.values()])
        frames = self._frames(seen)
        return torch.cat([frames.mean(0), frames[-1]])

    def _frames(self, observation: dict[str, Tensor]) -> Tensor:
        """(B, F) features of frames."""
        parts = [observation[key] for key in self.compared]
        if self.encoder is None:
            return torch.cat([part.flatten(1) for part in parts], 1).float().cpu()
        maps = self.encoder.encode([part.cpu().numpy() for part in parts])  # (B, C, 112, m, m)
        return maps.float().mean((-2, -1)).flatten(1)


def informative(solved: NDArray[np.bool_], group: NDArray[np.int64]) -> NDArray[np.bool_]:
    """(N,) true in groups of whose episodes a tenth to nine tenths are `solved` (N,)."""
    share = np.bincount(group, weights=solved) / np.bincount(group)
    return ((share >= 0.1) & (share <= 0.9))[group]


def self_referential(latent: NDArray[np.float64], solved: NDArray[np.bool_]) -> NDArray[np.float64]:
    """R (n,) of episodes with latents (n, D); see the module."""
    reward = solved.astype(np.float64)
    if not solved.any() or solved.all():
        return reward
    spread = latent.std(0)
    z = (latent - latent.mean(0)) / np.where(spread > 1e-8, spread, 1.0)
    nearest = apart(z[~solved], centres(z[solved])).min(1)
    low, high = nearest.min(), nearest.max()
    share = (nearest - low) / (high - low) if high > low else np.full(len(nearest), 0.5)
    reward[~solved] = SCALE / (1.0 + np.exp(-STEEPNESS * (0.5 - share)))
    return reward


def centres(z: NDArray[np.float64]) -> NDArray[np.float64]:
    """(k, D) of the clusters of points (n, D), or their mean where no two are neighbours."""
    from scipy.sparse.csgraph import connected_components  # late: scipy takes a second to import

    _, label = connected_components(apart(z, z) <= EPSILON, directed=False)
    size = np.bincount(label)
    return np.stack([z[label == k].mean(0) for k in np.flatnonzero(size > 1)] or [z.mean(0)])


def apart(x: NDArray[np.float64], y: NDArray[np.float64]) -> NDArray[np.float64]:
    """(n, m) root mean square differences of the components of (n, D) and (m, D)."""
    return np.sqrt(np.square(x[:, None] - y[None]).mean(-1))
