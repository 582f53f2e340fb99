"""The gradient of a batch, computed in shares side by side.

    ∇ 1/B Σ_b ℓ_b  =  Σ_s B_s/B ∇ 1/B_s Σ_{b ∈ s} ℓ_b

Every share has a Python thread of its own, in which torch computes with one. They wait for each other once a gradient;
threads inside torch's operations wait after every layer, and either burn a core that other work needs or fall asleep
for longer than the layer takes. The sum is taken in the order of the shares, so that the same number of them gives the
same bits, however the threads were scheduled and however many cores there are.

Dictionaries of tensors, row by row.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise
from typing import TypeVar

import torch
from torch import Tensor

T = TypeVar("T")
Means = dict[str, Tensor]


class Shards:
    """`count` shares of a batch, side by side.

    Args:
      count: shares, and threads; at least 1.
    """

    def __init__(self, count: int) -> None:
        self.count = count
        self._pool = ThreadPoolExecutor(count - 1, "shard", _one_thread) if count > 1 else None

    def each(self, function: Callable[[slice], T], size: int) -> list[tuple[int, T]]:
        """Call `function` with `count` slices that together are the `size` rows, or fewer where rows are few.

        Returns:
          (number of rows, result) of each slice, in order. Gradients are recorded where they are in the caller.
        """
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
            parameter.grad = _mean(weights, [gradients[i] for _, (gradients, _) in shares])
        every = [means for _, (_, means) in shares]
        found = {key: _mean(weights, [means[key] for means in every]) for key in every[0]}
        return {key: mean for key, mean in found.items() if mean is not None}


def _mean(weights: list[float], terms: Sequence[Tensor | None]) -> Tensor | None:
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
