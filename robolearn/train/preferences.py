"""Contrastive preference learning: a policy from pairs of clips of which one is better, without a reward or a critic.

Hejna et al. 2024, "Contrastive Preference Learning": under a model of regret the advantage of a step is α log π(a | s),
so that a comparison of clips is one of likelihoods. A denoising policy gives none that is cheap; as in Diffusion-DPO
(Wallace et al. 2024) minus its matching error takes the place, here without a reference policy. With the decisions of a
clip σ as the policy would make them, a chunk every Ta steps of which each executed step t of the clip counts once:

    S(σ)     = −α Σ_{t∈σ} γ^t e_t / Σ_{t∈σ} γ^t            e_t = ‖v(x_τ, τ, s) − u‖² / Da  of the action at t
    L(l ≻ r) = −log [ e^{S(l)} / (e^{S(l)} + e^{λ S(r)}) ] = softplus(λ S(r) − S(l))
    L        = y L(l ≻ r) + (1 − y) L(r ≻ l) + β L_imitation        y = 1, 0, and ½ where both are the same

λ < 1 is the paper's conservative bias: of two policies that part a pair alike the one that stays nearer to the data has
the smaller loss. Both clips of a pair have the same noise and times. Clips may differ in length, so means are compared:
by sums the shorter one would win by being short. L_imitation is the usual loss on the steps of the better clips.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

from robolearn.core import BadInput
from robolearn.data import Dataset
from robolearn.rewards.labels import LEFT_IS_BETTER, EpisodeClip, Preference, read_preferences
from robolearn.train.imitation import ImitationTrainer, Part
from robolearn.train.settings import PreferenceConfig


@dataclass(frozen=True)
class ClipTable:
    """The decisions of P pairs of clips, at most K each.

    Attributes:
      index: (P, 2, K) windows; 0 where a clip has fewer.
      weight: (P, 2, K, Tp) share of each action's error in that of its clip; 0 where it is not executed in it.
      label: (P,) y.
      better: windows of all steps of the clips that are better than another, each once.
    """

    index: Tensor
    weight: Tensor
    label: Tensor
    better: Tensor

    @staticmethod
    def of(
        preferences: Sequence[Preference], first: Mapping[int, int], *, execute: int, horizon: int, gamma: float
    ) -> ClipTable:
        """The table of `preferences`.

        Args:
          first: episode → the window of its first step.
          execute, horizon: Ta, Tp.
          gamma: γ.
        """
        pairs = [(p.left, p.right) for p in preferences]
        most = max(-(-len(clip) // execute) for pair in pairs for clip in pair)
        index = np.zeros((len(pairs), 2, most), np.int64)
        weight = np.zeros((len(pairs), 2, most, horizon), np.float32)
        better: set[int] = set()

        def windows(clip: EpisodeClip) -> np.ndarray:
            return first[clip.episode] + np.arange(clip.begin, clip.end)

        for i, (preference, pair) in enumerate(zip(preferences, pairs, strict=True)):
            for side, clip in enumerate(pair):
                begun = windows(clip)[::execute]
                index[i, side, : len(begun)] = begun
                step = np.arange(len(begun))[:, None] * execute + np.arange(horizon)  # of the clip
                own = np.where((step < len(clip)) & (np.arange(horizon) < execute), gamma**step, 0.0)
                weight[i, side, : len(begun)] = own / own.sum()
                if preference.better == ("left", "right")[side]:
                    better |= set(windows(clip).tolist())
        label = np.array([LEFT_IS_BETTER[p.better] for p in preferences], np.float32)
        arrays = index, weight, label, np.array(sorted(better))
        return ClipTable(*(torch.from_numpy(array) for array in arrays))


def preference_loss(score: Tensor, label: Tensor, conservative: float) -> Tensor:
    """Mean of y L(l ≻ r) + (1 − y) L(r ≻ l) over scores (n, 2) and labels (n,); `conservative` is λ."""
    left, right = score.unbind(1)
    own = F.softplus(conservative * right - left), F.softplus(conservative * left - right)
    return (label * own[0] + (1.0 - label) * own[1]).mean()


class PreferenceTrainer(ImitationTrainer):
    """Imitation of the better clips, and the preference loss; see the module."""

    config: PreferenceConfig

    @staticmethod
    def of_preferences(
        config: PreferenceConfig, dataset: Dataset, device: str | torch.device = "cpu"
    ) -> PreferenceTrainer:
        """A trainer on `dataset` and the preferences beside it; those with an episode that is held out are left out.
        Raises `BadInput`: no preferences, or a policy without a matching loss."""
        stored = read_preferences(dataset)
        if not stored:
            hint = "`robolearn reward prefer` writes some"
            raise BadInput(f"data set {dataset.path}", got="no preferences", expected="some", hint=hint)
        part = Part.of(config, dataset, None, device)
        begins = np.concatenate([[0], np.cumsum(dataset.lengths[part.episodes])[:-1]])
        first = dict(zip(part.episodes, begins.tolist(), strict=True))
        kept = [p for p in stored if p.left.episode in first and p.right.episode in first]
        if all(p.better == "same" for p in kept):
            got = f"{len(kept)} of {len(stored)} preferences between episodes that are trained on, all of them 'same'"
            raise BadInput(f"data set {dataset.path}", got=got, expected="one with a better clip")
        statistics = dataset.statistics(part.episodes)
        trainer = PreferenceTrainer(
            config, part.train, dataset.interface, statistics, validation=part.held, device=device
        )  # fmt: skip
        if not trainer.net.loss_has_parts:
            raise BadInput("--preferences", got=f"a policy of kind {trainer.net.name}", available=["flow", "diffusion"])
        policy = config.policy
        trainer.clips = ClipTable.of(
            kept, first, execute=policy.execute, horizon=policy.horizon, gamma=config.gamma
        )  # fmt: skip
        return trainer

    clips: ClipTable

    def _gradient(self, index: Tensor) -> dict[str, Tensor]:
        config, clips = self.config, self.clips
        pairs = torch.randint(len(clips.label), (config.pairs,), generator=self._generator, device=self.device).cpu()
        with self._autocast:
            imitation, _ = self.net.loss(*self._gather(index), self._generator, self.ema.module)
            score = self.scores(pairs)
            label = clips.label[pairs].to(self.device)
            preference = preference_loss(score, label, config.conservative)
            loss = preference + config.imitate * imitation
        loss.backward()
        decided = label != 0.5
        right = ((score[:, 0] > score[:, 1]) == (label > 0.5))[decided].float()
        parts = {"loss": loss, "loss_preference": preference, "loss_imitation": imitation}
        parts |= {"accuracy": right.mean() if len(right) else right.new_ones(())}
        return {key: value.detach() for key, value in parts.items()}

    def scores(self, pairs: Tensor) -> Tensor:
        """S of both clips of the `pairs` (n,), (n, 2)."""
        index, weight = self.clips.index[pairs], self.clips.weight[pairs].to(self.device)
        there = weight.sum(3) > 0
        observation, action, _ = self._gather(index[there.cpu()])
        n, sides, most = there.shape
        draws = self.net.draw(action.new_zeros(n * most, *action.shape[1:]), self._generator)
        draws.pop("d", None)  # of shortcut models the flow itself, d = 0, is what imitates
        own = {
            key: value.unflatten(0, (n, 1, most)).expand(n, sides, most, *value.shape[1:])[there]
            for key, value in draws.items()
        }
        error = (self.net.errors(observation, action, own, None) * weight[there]).sum(1)
        return -self.config.alpha * error.new_zeros(there.shape).masked_scatter(there, error).sum(2)

    def _indices(self, step: int) -> Tensor:
        """As of imitation, through the steps of the better clips."""
        better, windows = self.clips.better, self.config.windows
        epoch, batch = divmod(step, -(-len(better) // windows))
        if epoch != self._epoch:
            order = np.random.default_rng([self.config.seed, epoch]).permutation(len(better))
            self._epoch, self._order = epoch, better[torch.from_numpy(order)]
        return self._order[batch * windows : (batch + 1) * windows]
