"""Inverse dynamics: the action of a step from the observations around it, for sets that have no actions.

Zheng et al. 2023, "Semi-Supervised Offline Reinforcement Learning with Action-Free Trajectories" (SS-ORL): a model of
several transitions is learned where there are actions and labels what has none; learning goes on as if they were real.
Of vectors s_t, with k steps of the past and m beyond the next one (before the first one the first one stands, after the
last one the last one):

    x_t = (s_t, s_{t+1} − s_t, …, s_{t+m+1} − s_{t+m}, s_t − s_{t−1}, …, s_{t−k+1} − s_{t−k}),  each (x − μ) / σ
    â_t = clip(f(x_t), ±1)                    motions,  f by least squares
    â_t = median command of bin argmax_b p_b(x_t)       a gripper's opening,  p by cross-entropy over equal bins of ±1

An arm that accelerates has hardly moved when the next observation is made: most of a motion shows one step later.
Closed on an object a gripper shows the object's width, whatever it was commanded. The mean of the commands that fit is
one that nobody gave, too loose to hold with, so it is a choice. The paper's model is a Gaussian whose mean labels. The
last step of an episode whose final observation is not stored gets the action of the step before.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn import functional as F

from policies.networks.ensemble import EnsembleMlp
from robolearn.core import BadInput, Interface
from robolearn.core.machine import torch_threads
from robolearn.core.specs import check_compatible, is_image
from robolearn.data import Dataset
from robolearn.train.settings import InverseDynamicsConfig
from robots.chunk_execution import ActionParts

BINS = 9  # of a gripper's command
LEAST_SPREAD = 1e-6  # σ of what never changes


@dataclass(frozen=True)
class InverseErrors:
    """Mean squared errors on transitions of episodes that were held out, of each component of the action.

    Attributes:
      model: (Da,).
      mean_action: (Da,) of the mean action of the training, which looks at nothing.
      episodes: that were held out.
    """

    model: NDArray[np.float64]
    mean_action: NDArray[np.float64]
    episodes: int

    def to_json(self) -> dict[str, Any]:
        """Means over the components, and the components themselves."""
        parts = {"by_component": self.model.tolist(), "mean_action_by_component": self.mean_action.tolist()}
        means = {"error": float(self.model.mean()), "mean_action_error": float(self.mean_action.mean())}
        return {**means, "held_out_episodes": self.episodes, **parts}


def shared_features(labelled: Interface, other: Interface, what: str) -> tuple[str, ...]:
    """The vectors that both observe. Raises `BadInput`: there is none; or another arm, rate or meaning of a vector."""
    vectors = {key: spec for key, spec in labelled.observation.items() if not is_image(spec)}
    common = {key: spec for key, spec in vectors.items() if key in other.observation}
    if not common:
        got = f"no vector of {', '.join(vectors) or 'none'}; pictures alone are not enough"
        raise BadInput(f"observation of {what}", got=got, expected="one that both sets have")
    fields = {"observation": common, "control_hz": labelled.control_hz, "embodiment": labelled.embodiment}
    acting = {"action": labelled.action, "action_kind": labelled.action_kind, "extra": labelled.extra}
    needed = Interface(**fields, **acting)
    offered = Interface(other.observation, labelled.action, other.control_hz, other.embodiment,
                        labelled.action_kind, labelled.extra)  # fmt: skip
    check_compatible(needed, offered, what=what, subject="the labelled set")
    return tuple(common)


def transitions(seen: NDArray[np.float32], past: int, ahead: int) -> NDArray[np.float32]:
    """x of the module for T + 1 observations (T + 1, D) → (T, D (2 + m + k))."""
    last = len(seen) - 1
    rows = np.arange(last)
    steps = [*range(ahead + 1), *range(-1, -past - 1, -1)]
    moved = [seen[np.clip(rows + k + 1, 0, last)] - seen[np.clip(rows + k, 0, last)] for k in steps]
    return np.concatenate([seen[:-1], *moved], 1)


class InverseDynamics(nn.Module):
    """f and p of the module, for actions of `interface`; made by `fit`. `features`: the vectors that it looks at, in
    order."""

    mean: Tensor
    std: Tensor
    commands: Tensor  # (G, BINS), of a gripper whose bin is the most probable one

    def __init__(self, config: InverseDynamicsConfig, features: tuple[str, ...], interface: Interface) -> None:
        super().__init__()
        self.config, self.features = config, features
        opening = ActionParts.of(interface).opening
        self.motions, self.grippers = np.flatnonzero(~opening).tolist(), np.flatnonzero(opening).tolist()
        size = sum(int(np.prod(interface.observation[key].shape)) for key in features)
        inputs, outputs = size * (2 + config.ahead + config.past), len(self.motions) + BINS * len(self.grippers)
        self.net = EnsembleMlp(1, inputs, outputs, width=config.width, depth=config.depth)
        self.register_buffer("mean", torch.zeros(inputs))
        self.register_buffer("std", torch.ones(inputs))
        self.register_buffer("commands", torch.zeros(len(self.grippers), BINS))

    def standardise(self, x: Tensor, action: Tensor) -> None:
        """Take μ and σ from `x` (B, inputs), and the commands of a gripper from `action` (B, Da)."""
        self.mean.copy_(x.mean(0))
        self.std.copy_(x.std(0, correction=0).clamp_min(LEAST_SPREAD))
        for g, component in enumerate(self.grippers):
            given = action[:, component]
            within = bins(given)
            self.commands[g, within.unique()] = torch.stack([given[within == b].median() for b in within.unique()])

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """(B, inputs) → motions (B, Da − G), not clipped, and logits (B, G, BINS)."""
        found = self.net((x - self.mean) / self.std)[0]
        motions = len(self.motions)
        return found[:, :motions], found[:, motions:].unflatten(1, (len(self.grippers), BINS))

    def loss(self, x: Tensor, action: Tensor) -> Tensor:
        """L = E[ Σ_i (f_i(x) − a_i)² − Σ_g log p_g(bin of a_g | x) ]."""
        motions, logits = self(x)
        squares = (motions - action[:, self.motions]).square().sum()
        entropy = F.cross_entropy(logits.flatten(0, 1), bins(action[:, self.grippers]).flatten(), reduction="sum")
        return (squares + entropy) / len(x)

    @torch.no_grad()
    def predict(self, x: Tensor) -> Tensor:
        """(B, inputs) → â (B, Da)."""
        motions, logits = self(x)
        action = x.new_empty(len(x), len(self.motions) + len(self.grippers))
        action[:, self.motions] = motions.clamp(-1.0, 1.0)
        action[:, self.grippers] = self.commands.gather(1, logits.argmax(-1).T).T
        return action

    def inputs(self, dataset: Dataset, episode: int) -> NDArray[np.float32]:
        """x of each step of an episode whose next observation is stored."""
        seen = dataset.episode(episode).seen
        flat = [np.asarray(seen[key], np.float32).reshape(len(seen[key]), -1) for key in self.features]
        return transitions(np.concatenate(flat, 1), self.config.past, self.config.ahead)

    def label(self, dataset: Dataset, episode: int) -> NDArray[np.float32]:
        """The actions (T, Da) of an episode."""
        length = int(dataset.lengths[episode])
        x = torch.from_numpy(self.inputs(dataset, episode))
        if not len(x):
            got = f"{length} step without a next observation"
            raise BadInput(f"episode {episode} of {dataset.path}", got=got, expected="two observations at least")
        action = self.predict(x).numpy()
        return np.pad(action, ((0, length - len(action)), (0, 0)), mode="edge")


def fit(
    config: InverseDynamicsConfig, dataset: Dataset, features: tuple[str, ...],
    progress: Callable[[int, dict[str, float]], None] = lambda step, row: None,
) -> tuple[InverseDynamics, InverseErrors]:  # fmt: skip
    """A model of the actions in `dataset`, and its errors on the episodes that were held out. Raises `BadInput`: fewer
    than two episodes, or a model that is no better than the mean action."""
    if dataset.episodes < 2:
        expected = "at least 2: one to train on, one held out"
        raise BadInput(f"data set {dataset.path}", got=f"{dataset.episodes} episode", expected=expected)
    rng = np.random.default_rng(config.seed)
    order = rng.permutation(dataset.episodes)
    held = max(1, round(config.validation * dataset.episodes))
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(config.seed)
        model = InverseDynamics(config, features, dataset.interface)
    x, a = _pairs(model, dataset, order[held:])
    model.standardise(x, a)
    optimizer = torch.optim.AdamW(model.parameters(), lr=config.lr)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, config.steps)
    with torch_threads(1):
        for step in range(config.steps):
            rows = torch.from_numpy(rng.integers(len(x), size=config.batch))
            loss = model.loss(x[rows], a[rows])
            optimizer.zero_grad(set_to_none=True)
            loss.backward()
            optimizer.step()
            schedule.step()
            progress(step + 1, {})
    new_x, new_a = _pairs(model, dataset, order[:held])
    error = (model.predict(new_x) - new_a).square().mean(0)
    errors = InverseErrors(
        error.double().numpy(), (a.mean(0) - new_a).square().mean(0).double().numpy(), held
    )  # fmt: skip
    if not errors.model.mean() < errors.mean_action.mean():
        got = f"an error of {errors.model.mean():.3g} on held-out episodes; the mean action has "
        got += f"{errors.mean_action.mean():.3g}"
        expected = f"actions that {', '.join(features)} show"
        raise BadInput(f"inverse dynamics of {dataset.path}", got=got, expected=expected)
    return model, errors


def bins(command: Tensor) -> Tensor:
    """Of equal width over −1 … 1, the number of each command's."""
    return ((command + 1.0) / 2.0 * BINS).long().clamp(0, BINS - 1)


def _pairs(model: InverseDynamics, dataset: Dataset, episodes: Sequence[int] | NDArray) -> tuple[Tensor, Tensor]:
    """Inputs and actions of all transitions of `episodes`."""
    x = [model.inputs(dataset, int(e)) for e in episodes]
    a = [dataset.episode(int(e)).action[: len(part)] for e, part in zip(episodes, x, strict=True)]
    return torch.from_numpy(np.concatenate(x)), torch.from_numpy(np.concatenate(a))
