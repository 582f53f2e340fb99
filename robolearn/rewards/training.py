"""Training of the progress critic: a trainer for the one loop of `robolearn.runs.loop`, exactly resumable.

What is trained are the members' heads. All randomness is a function of (seed, member, step): a resumed run repeats an
uninterrupted one bit for bit on the CPU. A share of the episodes is kept from training, and the threshold of *done* is
fitted on it:

    m_e = max_t min(p_t, …, p_{t+k−1})      the highest threshold at which episode e is called done: k frames in a row
    θ ∈ (lo, hi]                            lo: the highest failure above which at most 2% of the failures lie
                                            hi: the least success above lo
    θ = ½ where that lies between, else (lo + hi) / 2

All thresholds from lo to hi have the same false positives and the same recall, the best that the bound leaves. Of few
failures the highest says little of the next one, so the smallest of these thresholds is not taken.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn import functional as F

from robolearn.core import BadInput
from robolearn.data import Dataset
from robolearn.rewards.critic import STARTS, ProgressCritic
from robolearn.rewards.done import FIRST_SURE
from robolearn.rewards.first_frames import FirstFrames
from robolearn.rewards.head_trainer import LEAST_SPREAD, HeadTrainer, common_cameras, kept_of_each, lengths_of
from robolearn.rewards.networks import ProgressNet
from robolearn.rewards.pairs import Pairs, PairSampler
from robolearn.rewards.settings import HAND, STATE, CriticConfig, other_sentences

FALSE = 0.02  # most of the failures that may be called done
USUAL = 0.5


@dataclass(frozen=True)
class FittedThreshold:
    """A threshold of *done*, and what it did on the episodes that it was fitted on.

    Attributes:
      recall, false: (called, of how many) successes and failures.
    """

    threshold: float
    recall: tuple[int, int]
    false: tuple[int, int]


def highest_threshold(probability: NDArray, frames: int = 1) -> float:
    """m of an episode with (T,) probabilities of done, `frames` of them in a row; 0 where it is shorter."""
    if len(probability) < frames:
        return 0.0
    return float(np.lib.stride_tricks.sliding_window_view(probability, frames).min(1).max())


def fit_threshold(solved: NDArray[np.float64], failed: NDArray[np.float64]) -> FittedThreshold:
    """θ of the m (n,) of successes and of failures, at least one of each; see the module."""
    lo = float(np.sort(failed)[::-1][int(FALSE * len(failed))])
    hi = float(solved[solved > lo].min(initial=1.0))
    threshold = USUAL if lo < USUAL <= hi else (lo + hi) / 2.0
    called = (int((solved >= threshold).sum()), len(solved)), (int((failed >= threshold).sum()), len(failed))
    return FittedThreshold(threshold, *called)


Embed = Callable[[Sequence[str]], Any]
"""n sentences → (n, 384)."""


def critic_loss(
    net: Callable[[Tensor, Tensor, Tensor], tuple[Tensor, Tensor]],
    first: Tensor,
    second: Tensor,
    words: Tensor,
    pairs: Pairs,
    done_weight: float,
) -> tuple[Tensor, dict[str, Tensor]]:
    """The loss of a batch of pairs; see `robolearn.rewards.pairs`.

    L = mean e² + w · done_loss      e = c − c*, or max(c − c*, 0) at a bound
    """
    c, odds = net(first, second, words)
    target, bound = (torch.from_numpy(v).to(c.device) for v in (pairs.target, pairs.bound))
    error = torch.where(bound, (c - target).clamp_min(0.0), c - target)
    progress = error.square().mean()
    called = done_loss(odds, pairs)
    return progress + done_weight * called, {"progress_loss": progress.detach(), "done_loss": called.detach()}


def done_loss(odds: Tensor, pairs: Pairs) -> Tensor:
    """Balanced cross-entropy of the log-odds (B,) of done, over the frames that are asked."""
    done = torch.from_numpy(pairs.done).to(odds.device)
    asked = torch.isfinite(done)
    label = done[asked]
    # Ends of episodes are few: both answers weigh the same together.
    ones = label.sum().clamp_min(1.0)
    weight = torch.where(label > 0.5, 0.5 / ones, 0.5 / (len(label) - label.sum()).clamp_min(1.0))
    return (F.binary_cross_entropy_with_logits(odds[asked], label, reduction="none") * weight).sum()


class CriticTrainer(HeadTrainer[CriticConfig, ProgressCritic]):
    """See the module; of `datasets` with successes and failures.

    Args:
      embed: sentences → vectors; by default the sentence encoder of the extra ``words``.
      options: of `HeadTrainer`.

    Raises:
      BadInput: no picture, no success, no failure, or an extra that is not installed.
    """

    def __init__(
        self, config: CriticConfig, datasets: Sequence[Dataset], *, embed: Embed | None = None, **options: Any
    ) -> None:
        self._embed = embed
        super().__init__(config, datasets, **options)
        kept = np.concatenate([np.resize(starts, STARTS) for starts in self._sampler.solved_starts])
        self.critic.starts.copy_(self._maps[0, torch.from_numpy(kept)])
        if self._kept.any():
            firsts = self._maps[0, torch.from_numpy(self._episodes.starts)]
            self.critic.firsts = FirstFrames(firsts.shape[1:]).to(self.device)
            self.critic.firsts.fit(firsts[torch.from_numpy(~self._kept)], firsts[torch.from_numpy(self._kept)])

    def _model(self, datasets: Sequence[Dataset], cameras: Sequence[str]) -> Callable[[], ProgressCritic]:
        pictures = common_cameras(datasets, cameras)
        tasks = list(dict.fromkeys(task for dataset in datasets for task in dataset.tasks))
        if any(not task.strip() for task in tasks):
            raise BadInput("--data", got="a task without words", expected="a sentence for each task",
                           hint="robolearn dataset edit rename-task gives it one")  # fmt: skip
        self._episodes, sentences = _episodes(datasets, tasks), [*tasks, *other_sentences(tasks)]
        if self._embed is None:
            from policies.networks.words import SentenceEncoder

            self._embed = SentenceEncoder()
        vectors = torch.as_tensor(np.asarray(self._embed(sentences)), dtype=torch.float32)
        state = common_state(datasets) if self.config.hand else ()
        return partial(ProgressCritic, self.config, pictures, sentences, vectors, state, tasks=len(tasks))

    def _arrange(self, datasets: Sequence[Dataset]) -> None:
        self._kept = self._episodes.kept(self.config)
        self._sampler = self._episodes.sampler(self.config, ~self._kept, len(self.critic.sentences))
        self._hands = self._standardised(datasets)

    @property
    def heads(self) -> nn.Module:
        return self.critic.members

    def _rate(self, step: int) -> float:
        # lr = lr_0 (0.1 + 0.9 (1 + cos π s) / 2)
        return self.config.lr * (0.1 + 0.45 * (1 + math.cos(math.pi * step / self.config.steps)))

    def _step(self, step: int) -> dict[str, Tensor]:
        self.optimizer.zero_grad(set_to_none=True)
        total, seen = torch.zeros((), device=self.device), {}
        for m, member in enumerate(self.critic.members):
            # Of its own draws: members that learned from the same pairs would err together.
            rng = np.random.default_rng([self.config.seed, m, step])
            torch.manual_seed(int(rng.integers(2**62)))  # of dropout
            pairs = self._sampler.draw(rng)
            view = torch.from_numpy(rng.integers(self.config.views, size=len(pairs.first)))
            first, second = (
                self._maps[view, torch.from_numpy(rows)].to(self.device) for rows in (pairs.first, pairs.second)
            )
            words = self.critic.vectors[torch.from_numpy(pairs.words).to(self.device)]
            assert isinstance(member, ProgressNet)
            loss, parts = critic_loss(member, first, second, words, pairs, self.config.done_weight)
            if self._hands is not None and member.hand is not None:
                by_hand = done_loss(member.hand(self._hands[torch.from_numpy(pairs.second)], words), pairs)
                loss, parts = loss + by_hand, parts | {"hand_loss": by_hand.detach()}
            total = total + loss
            for key, value in (parts | {"loss": loss.detach()}).items():
                seen[key] = seen.get(key, 0.0) + value / self.config.members
        total.backward()
        torch.nn.utils.clip_grad_norm_(self.critic.members.parameters(), 1.0 * math.sqrt(self.config.members))
        self.optimizer.step()
        return seen

    def summary(self) -> dict[str, tuple[int, int]]:
        """Recall and false positives of *done*; nothing where no episodes of both outcomes are kept from training."""
        found = self._fit()
        return {"recall": found.recall, "false_positive_rate": found.false} if found else {}

    def fitted(self) -> dict[str, float]:
        """See `HeadTrainer.fitted`."""
        return {"threshold": self.critic.threshold}

    def export(self, path: Path) -> None:
        """Write the critic, its threshold fitted, as a checkpoint folder."""
        self._fit()
        super().export(path)

    def _fit(self) -> FittedThreshold | None:
        """Set the threshold of *done*."""
        episodes, kept = self._episodes, np.flatnonzero(self._kept)
        highest = np.array([self._highest(int(e)) for e in kept])
        success = episodes.success[kept]
        if not success.any() or success.all():
            return None
        found = fit_threshold(highest[success], highest[~success])
        self.critic.threshold = found.threshold
        return found

    def _highest(self, e: int) -> float:
        """The highest threshold at which episode `e` is called done: after a step, in as many frames as it takes."""
        episodes = self._episodes
        rows = torch.arange(episodes.lengths[e]) + int(episodes.starts[e])
        words = self.critic.vectors[int(episodes.words[e])][None]
        self.critic.eval()
        hand = None if self._hands is None else self._hands[rows]
        _, probability = self.critic.judged(self._maps[0, rows], words, hand)
        return highest_threshold(probability[int(episodes.final[e]) :], FIRST_SURE.frames)

    def _standardised(self, datasets: Sequence[Dataset]) -> Tensor | None:
        """(N, 4) hands of all frames, whose mean and deviation each member gets; None where they are not asked."""
        episodes = (dataset.episode(e).seen for dataset in datasets for e in range(dataset.episodes))
        hands = [hand for seen in episodes if (hand := self.critic.hand(seen)) is not None]
        if not hands:
            return None
        found = torch.cat(hands).to(self.device)
        for member in self.critic.members:
            assert isinstance(member, ProgressNet) and member.hand is not None
            member.hand.centre.copy_(found.mean(0))
            member.hand.scale.copy_(found.std(0).clamp_min(LEAST_SPREAD))
        return found


def common_state(datasets: Sequence[Dataset]) -> tuple[str, ...]:
    """The names of the arm's own state, if all sets have the same and a hand among them; otherwise none."""
    specs = [dataset.interface.observation.get(STATE) for dataset in datasets]
    names = {() if spec is None else spec.names or () for spec in specs}
    (state,) = names if len(names) == 1 else ((),)
    return state if set(HAND) <= set(state) else ()


@dataclass(frozen=True, eq=False)
class _Episodes:
    """(E,) facts of all episodes of all sets, as `PairSampler` takes them."""

    starts: NDArray[np.int64]
    lengths: NDArray[np.int64]
    success: NDArray[np.bool_]
    final: NDArray[np.bool_]
    words: NDArray[np.int64]

    def kept(self, config: CriticConfig) -> NDArray[np.bool_]:
        """(E,) true of the episodes that are kept from training."""
        return kept_of_each(2 * self.words + self.success, config.holdout, config.seed)

    def sampler(self, config: CriticConfig, among: NDArray[np.bool_], sentences: int) -> PairSampler:
        """Draws pairs `among` (E,) these episodes."""
        return PairSampler(
            config, self.starts[among], self.lengths[among], self.success[among], self.final[among], self.words[among],
            sentences,
        )  # fmt: skip


def _episodes(datasets: Sequence[Dataset], tasks: list[str]) -> _Episodes:
    lengths, final = (np.concatenate(parts) for parts in zip(*map(lengths_of, datasets), strict=True))
    words = [tasks.index(dataset.episode(e).task) for dataset in datasets for e in range(dataset.episodes)]
    starts = np.concatenate([[0], np.cumsum(lengths)[:-1]]).astype(np.int64)
    success = np.concatenate([dataset.success for dataset in datasets])
    return _Episodes(starts, lengths, success, final, np.array(words, np.int64))
