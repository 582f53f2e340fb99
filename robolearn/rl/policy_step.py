"""One update of a policy: minibatches, a step size that follows the KL divergence, and a line search.

The clip of PPO bounds what a sample can gain, not how far the weights go: Adam's first steps are as long as its step
size whatever the gradient says, and with few samples the first iteration can move a policy by many times what is good
for it. A policy that was nearly always right then never comes back within a short budget. Near θ the KL divergence
grows with the square of the way Δ that the weights went,

    KL(θ + s Δ) ≈ s² KL(θ + Δ),    s = √(target / KL),

so a step that went too far is shortened to where it should have ended (the line search of TRPO, Schulman et al. 2015).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise
from typing import TypeVar

import torch
from torch import Tensor, nn

from robolearn.core import NonFinite

T = TypeVar("T")
Means = dict[str, Tensor]


class Shards:
    """`count` shares of a batch, at least 1, side by side.

        ∇ 1/B Σ_b ℓ_b  =  Σ_s B_s/B ∇ 1/B_s Σ_{b ∈ s} ℓ_b

    Every share has a Python thread of its own, in which torch computes with one. They wait for each other once a
    gradient; threads inside torch's operations wait after every layer, and either burn a core that other work needs or
    fall asleep for longer than the layer takes. The sum is taken in the order of the shares, so that the same number of
    them gives the same bits, however the threads were scheduled and however many cores there are.
    """

    def __init__(self, count: int) -> None:
        self.count = count
        self._pool = ThreadPoolExecutor(count - 1, "shard", _one_thread) if count > 1 else None

    def each(self, function: Callable[[slice], T], size: int) -> list[tuple[int, T]]:
        """Call `function` with `count` slices that together are the `size` rows, or fewer where rows are few. Returns
        (number of rows, result) of each slice, in order. Gradients are recorded where they are in the caller."""
        edges = [size * s // self.count for s in range(self.count + 1)]
        parts = [slice(a, b) for a, b in pairwise(edges) if b > a]
        enabled = torch.is_grad_enabled()

        def share(part: slice) -> T:
            with torch.set_grad_enabled(enabled):
                return function(part)

        if self._pool is None:
            return [(part.stop - part.start, share(part)) for part in parts]
        others = [self._pool.submit(share, part) for part in parts[1:]]
        results = [share(part) for part in parts[:1]] + [other.result() for other in others]
        return [(part.stop - part.start, result) for part, result in zip(parts, results, strict=True)]

    def rows(self, function: Callable[[slice], Tensor], size: int) -> Tensor:
        """(size, …) what `function` says of each slice, one after the other, without gradients."""
        with torch.no_grad():
            return torch.cat([result for _, result in self.each(function, size)])

    def backward(self, loss: Callable[[slice], tuple[Tensor, Means]], size: int, parameters: list[Tensor]) -> Means:
        """Set the gradients of `parameters` to that of the mean loss over `size` rows.

        Args:
          loss: slice → its mean loss and further means without gradients.
          size: rows of the batch.
          parameters: leaves; one that the loss does not depend on gets None.

        Returns:
          The further means, over the whole batch.
        """

        def share(part: slice) -> tuple[tuple[Tensor | None, ...], Means]:
            value, means = loss(part)
            return torch.autograd.grad(value, parameters, allow_unused=True), means

        shares = self.each(share, size)
        weights = [rows / size for rows, _ in shares]
        for i, parameter in enumerate(parameters):
            parameter.grad = _weighted(weights, [gradients[i] for _, (gradients, _) in shares])
        every = [means for _, (_, means) in shares]
        found = {key: _weighted(weights, [means[key] for means in every]) for key in every[0]}
        return {key: mean for key, mean in found.items() if mean is not None}


def _weighted(weights: list[float], terms: Sequence[Tensor | None]) -> Tensor | None:
    """Σ_s w_s x_s of the terms that are there, in their order; None where none is."""
    total = None
    for weight, term in zip(weights, terms, strict=True):
        if term is not None:
            total = weight * term if total is None else total.add_(term, alpha=weight)
    return total


def _one_thread() -> None:
    torch.set_num_threads(1)


Normalise = Callable[[dict[str, Tensor]], dict[str, Tensor]]


def rows(features: dict[str, Tensor], index: Tensor | slice) -> dict[str, Tensor]:
    """The rows `index` of every feature."""
    return {key: value[index] for key, value in features.items()}


LR_RANGE = (1e-5, 2e-3)  # of the actor
FURTHEST = 4.0  # times the target: the KL divergence that an iteration may end with

Loss = Callable[[slice], tuple[Tensor, Means]]
"""rows of a minibatch → mean loss over them, and further means without gradients."""


class MinibatchOptimizer:
    """Adam over shuffled minibatches whose gradients are computed in shares.

    Args:
      minibatch: rows per gradient step.
      max_grad_norm: longer gradients are shortened.
      generator: of the order of the rows, on the CPU.
    """

    def __init__(
        self, module: nn.Module, lr: float, *, minibatch: int, max_grad_norm: float, shards: Shards,
        generator: torch.Generator,
    ) -> None:  # fmt: skip
        self.parameters: list[Tensor] = [p for p in module.parameters() if p.requires_grad]
        self.adam = torch.optim.Adam(self.parameters, lr=lr, eps=1e-5, fused=True)
        self.minibatch, self.max_grad_norm = minibatch, max_grad_norm
        self._shards, self._generator = shards, generator

    def set_lr(self, lr: float) -> None:
        """Set the step size."""
        for group in self.adam.param_groups:
            group["lr"] = lr

    def epochs(
        self,
        size: int,
        epochs: int,
        loss: Callable[[Tensor], Loss],
        until: Callable[[dict[str, float]], bool] = lambda _: False,
    ) -> dict[str, float]:
        """Go through `size` rows `epochs` times; returns the mean of what the losses report. `loss`: (b,) rows of a
        minibatch → its loss. `until`: whether to stop after a step that reported so much."""
        seen: list[dict[str, float]] = []
        for _ in range(epochs):
            order = torch.randperm(size, generator=self._generator, device=self._generator.device)
            order = order.to(self.parameters[0].device)
            for index in order.split(self.minibatch):
                if len(index) < 2:
                    continue  # a single sample has no standard deviation
                seen.append(self.step(loss(index), len(index)))
                if until(seen[-1]):
                    return _mean(seen)
        return _mean(seen)

    def step(self, loss: Loss, size: int) -> dict[str, float]:
        """One step on the mean loss over `size` rows; returns the means. Raises `NonFinite`: the gradient is NaN or
        infinite; the weights are as before."""
        means = self._shards.backward(loss, size, self.parameters)
        trained = [p for p in self.parameters if p.grad is not None]
        norm = nn.utils.clip_grad_norm_(trained, self.max_grad_norm, foreach=True)
        if not torch.isfinite(norm):  # it would stay in Adam's moments for ever
            raise NonFinite("fine-tuning: a gradient became NaN or infinite; try a smaller --actor-lr")
        self.adam.step()
        return {key: float(value) for key, value in means.items()}


class PolicyStep:
    """Moves `module` by about `target` nats an iteration.

    The clip of PPO bounds one step; epochs end where many steps add up to `FURTHEST` times the target, the step size
    follows the divergence, and what still went too far is shortened.
    """

    def __init__(self, module: nn.Module, optimizer: MinibatchOptimizer) -> None:
        self.module, self.optimizer = module, optimizer

    @property
    def lr(self) -> float:
        """The present step size."""
        return self.optimizer.adam.param_groups[0]["lr"]

    def improve(
        self, size: int, epochs: int, loss: Callable[[Tensor], Loss], kl: Callable[[], float], target: float | None
    ) -> dict[str, float]:
        """Several epochs on `loss`, which reports ``"kl"``; see `MinibatchOptimizer.epochs`.

        Args:
          kl: divergence of the policy before from the policy now, over all rows.
          target: of that; None: the step is what its size and the epochs make it.

        Returns:
          The means of the losses, ``actor_lr``, ``step_kept`` and the ``kl`` that it ended with.
        """
        if target is None:
            return self.optimizer.epochs(size, epochs, loss) | {"actor_lr": self.lr, "step_kept": 1.0, "kl": kl()}
        furthest = FURTHEST * target
        search = KlLineSearch(self.module)
        metrics = self.optimizer.epochs(size, epochs, loss, until=lambda step: step["kl"] > furthest)
        found = kl()
        metrics["actor_lr"] = self.lr
        self._adapt(found, target)
        metrics["step_kept"], metrics["kl"] = search.within(found, kl, furthest, target)
        return metrics

    def _adapt(self, kl: float, target: float) -> None:
        if kl > 2 * target:
            self.optimizer.set_lr(max(self.lr / 1.5, LR_RANGE[0]))
        elif kl < target / 2:
            self.optimizer.set_lr(min(self.lr * 1.5, LR_RANGE[1]))


def target_at(target: float, progress: float) -> float:
    """The target of the divergence after the share `progress` of the budget: on a cosine to a half."""
    return target * (0.5 + 0.5 * 0.5 * (1 + math.cos(math.pi * progress)))


def _mean(rows: list[dict[str, float]]) -> dict[str, float]:
    return {key: sum(row[key] for row in rows) / len(rows) for key in rows[0]}


TRIES = 8


class KlLineSearch:
    """The trained parameters of `module` as they are now, to come back towards."""

    def __init__(self, module: nn.Module) -> None:
        self._now: list[nn.Parameter] = [p for p in module.parameters() if p.requires_grad]
        self._before = [p.detach().clone() for p in self._now]

    @torch.no_grad()
    def shorten(self, share: float) -> None:
        """θ ← θ_before + share · (θ − θ_before)."""
        for now, before in zip(self._now, self._before, strict=True):
            now.copy_(torch.lerp(before, now, share) if share > 0 else before)

    def within(self, found: float, kl: Callable[[], float], limit: float, target: float) -> tuple[float, float]:
        """Shorten until the divergence, `found` now and `kl()` after each time, is at most `limit`, aiming at `target`.
        Returns the share of the way that is kept, in [0, 1], and the divergence then."""
        kept = 1.0
        for _ in range(TRIES):
            if found <= limit:
                break
            # Far from θ the divergence is not quadratic: bounds on the share. Where it is not finite: back to θ.
            share = min(max(math.sqrt(target / found), 0.1), 0.5) if math.isfinite(found) else 0.0
            self.shorten(share)
            kept *= share
            found = kl()
        return kept, found
