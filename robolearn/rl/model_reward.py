"""Rewards of a rollout by a reward model, in the place of the world's: after it was collected, before the update.

    r_t = [done first at t] + γ Φ(o_{t+1}) − Φ(o_t)        Φ: the model's progress, of decisions; 0 after an end
    r_t = [done first at t] + Φ(o_{t+1}) − Φ(o_t)          with `shaping` "delta"; others: `rewards.shaping`

The world's own reward and its success are not learned from, only counted beside the model's verdict; that the world
ends a solved episode is. An episode that goes on from one rollout to the next is scored against its first frame, which
is kept; what its steps were between is not. An episode whose score is withheld is left out of the update, to its end.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

import numpy as np
import torch
from torch import Tensor

from robolearn.core import BadInput, Env, RewardModel, RobolearnError, Window
from robolearn.rewards.asking import WithheldCount
from robolearn.rewards.done import FIRST_SURE
from robolearn.rewards.shaping import Shaping, shaped_rewards
from robolearn.rl.audit import counts
from robolearn.rl.buffer import RolloutBatch, Scale
from robolearn.runs.checkpoint import prefixed, unprefixed


def check_seen(model: RewardModel, features: Iterable[str]) -> None:
    """Raise `BadInput` unless what `model` reads is among the `features` that are kept of observations."""
    kept = tuple(features)
    lacking = [feature for feature in getattr(model, "reads", ()) if feature not in kept]
    if lacking:
        got = f"a policy that does not see {lacking[0]}"
        raise BadInput("--reward", got=got, expected="what the model reads", available=kept)


class ModelReward:
    """See the module.

    Args:
      model: scores windows whose steps are decisions: the observation after each, without the actions.
      env: the worlds.
      gamma: discount of a decision.
      features: of the observations that the rollouts keep.
      shaping: see `robolearn.rewards.shaping`; raw differences may make another policy the best.

    Raises:
      BadInput: the model reads what the rollouts do not keep, or the worlds always move together.
    """

    def __init__(
        self, model: RewardModel, env: Env, gamma: float, features: Iterable[str], shaping: Shaping = "shaped"
    ) -> None:
        check_seen(model, features)
        if env.steps_together:
            raise BadInput("--reward", got=f"{env.task}, whose worlds move together", expected="another task")
        self.model, self.gamma = model, gamma
        self.shaping: Shaping = shaping
        self._prompt, self._actions = env.prompt, env.interface.action.shape
        self._first: dict[str, Tensor] = {}  # feature → (N, …), the first frame of each running episode
        self._running, self._called, self._left_out = (torch.zeros(env.num_envs, dtype=torch.bool) for _ in range(3))
        self._withheld = WithheldCount()
        self._potential = torch.zeros(env.num_envs)

    def begin(self) -> None:
        """All worlds begin new episodes."""
        self._running.zero_()

    def fill(self, batch: RolloutBatch, scale: Scale) -> tuple[RolloutBatch, dict[str, float]]:
        """`batch` with the model's rewards, scaled, and metrics: ``called_done``, the share of its ended episodes that
        the model called done, ``progress``, the mean at their ends, and the counts of `robolearn.rl.audit`; and
        ``withheld``, the number of ended episodes that are left out of it.

        Args:
          scale: as the algorithm's; the rewards of the batch are not scaled yet.

        Raises:
          RobolearnError: no score came for any episode, or not for many in a row.
        """
        pieces = self._pieces(batch)
        fresh = [self._begins(batch, world, rows) for world, rows in pieces]
        asked = [
            begins or not bool(self._left_out[world]) for (world, _), (_, begins) in zip(pieces, fresh, strict=True)
        ]
        windows = [window for (window, _), asks in zip(fresh, asked, strict=True) if asks]
        scores = iter(self._withheld.scores(self.model, windows, [self._prompt] * len(windows)))
        reward, kept = torch.zeros(len(batch)), torch.ones(len(batch), dtype=torch.bool)
        ended, terminated = batch.ended.cpu(), batch.terminated.cpu()
        solved, verdicts, ends, withheld = batch.solved.cpu(), [], [], 0
        for (world, rows), (_, begins), asks in zip(pieces, fresh, asked, strict=True):
            if begins:
                self._called[world], self._potential[world] = False, 0.0
            score = next(scores) if asks else None
            self._left_out[world] = score is None
            if score is None:
                kept[rows] = False
                withheld += int(ended[rows[-1]])
                continue
            progress, sure = score.progress, FIRST_SURE.sure(score)
            made = shaped_rewards(
                progress, sure & (not bool(self._called[world])), start=float(self._potential[world]), gamma=self.gamma,
                ended=bool(terminated[rows[-1]]), kind=self.shaping,
            )  # fmt: skip
            reward[rows] = torch.from_numpy(made)
            self._called[world] |= bool(sure.any())
            self._potential[world] = float(progress[-1])
            if bool(ended[rows[-1]]):
                verdicts.append((bool(self._called[world]), bool(solved[rows[-1]])))
                ends.append(float(progress[-1]))
        if not kept.any():
            raise RobolearnError("the rewards of all episodes of a rollout are withheld: nothing is learned from it")
        metrics = counts(verdicts) | {"progress": float(np.mean(ends))} if ends else {}
        made = replace(batch, reward=_scaled(batch, reward, kept, scale))
        return made if kept.all() else made.only(kept.to(batch.reward.device)), metrics | {"withheld": float(withheld)}

    def _pieces(self, batch: RolloutBatch) -> list[tuple[int, Tensor]]:
        """The rows of each episode, or part of one, world by world, and in it in order."""
        grid, ended = batch.grid.cpu(), batch.ended.cpu()
        found = []
        for world in range(grid.shape[1]):
            rows = grid[:, world][grid[:, world] >= 0]
            cuts = (torch.nonzero(ended[rows])[:, 0] + 1).tolist()
            for start, end in zip([0, *cuts], [*cuts, len(rows)], strict=True):
                if end > start:
                    found.append((world, rows[start:end]))
        return found

    def _begins(self, batch: RolloutBatch, world: int, rows: Tensor) -> tuple[Window, bool]:
        """The first frame of the episode and the frames after each of its decisions `rows`; and whether it begins with
        them."""
        at = rows.to(batch.reward.device)
        begins = not bool(self._running[world])
        if begins:
            for key, value in batch.observation.items():
                if key not in self._first:
                    self._first[key] = torch.zeros((len(self._running), *value.shape[1:]), dtype=value.dtype)
                self._first[key][world] = value[at[0]].cpu()
        self._running[world] = not bool(batch.ended[at[-1]])
        seen = {
            key: torch.cat([self._first[key][world][None], value[at].cpu()]).numpy()
            for key, value in batch.next_observation.items()
        }
        return Window(seen, np.zeros((len(rows), *self._actions), np.float32)), begins

    def state(self) -> dict[str, Tensor]:
        """Everything that the rewards of the next rollout depend on."""
        flags = {"running": self._running, "called": self._called, "left_out": self._left_out}
        flags = {key: value.clone() for key, value in (flags | {"potential": self._potential}).items()}
        return flags | prefixed("first", {key: value.clone() for key, value in self._first.items()})

    def load_state(self, tensors: dict[str, Tensor]) -> None:
        """The inverse of `state`."""
        self._running, self._called = tensors["running"].clone(), tensors["called"].clone()
        self._potential = tensors["potential"].clone()
        if "left_out" in tensors:  # a state of an earlier version has none: there was nothing left out
            self._left_out = tensors["left_out"].clone()
        self._first = {key: value.clone() for key, value in unprefixed("first", tensors).items()}


def _scaled(batch: RolloutBatch, reward: Tensor, kept: Tensor, scale: Scale) -> Tensor:
    """(B,) rewards by the algorithm's scale, which sees those that are `kept` (B,), decision by decision as they were
    made."""
    grid, ended = batch.grid.cpu(), batch.ended.cpu().numpy()
    out = torch.zeros(len(batch))
    for rows in grid:
        present = (rows >= 0).numpy()
        counted = present & kept[rows].numpy()
        values = np.where(counted, reward[rows].numpy(), 0.0).astype(np.float32)
        scaled = scale(values, present & ended[rows.numpy()], counted)
        out[rows[rows >= 0]] = torch.from_numpy(np.asarray(scaled, np.float32)[present])
    return out.to(batch.reward.device)
