"""One decision of a policy as one graph: normalisation, encoder and all denoising steps, for any number of worlds."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import Tensor, nn

from policies.policy import ChunkPolicy
from policies.registry import LearnedPolicy
from robolearn.core.specs import is_image

TRACED = 3  # worlds in the example: of 0 and 1 the exporter would take the number for a constant


class Decision(nn.Module):
    """``decide`` of a policy, as the module that exporters want."""

    def __init__(self, policy: LearnedPolicy) -> None:
        super().__init__()
        self.policy = policy

    def forward(self, observation: dict[str, Tensor], noise: Tensor) -> Tensor:
        """Features (N, [To,] …) as observed and standard normal noise (N, …) → actions (N, …)."""
        return self.policy.decide(observation, noise)


def decision_graph(policy: LearnedPolicy) -> torch.export.ExportedProgram:
    """The graph of ``policy.decide``, on the policy's device, its number of worlds left open."""
    example = example_inputs(policy, TRACED)
    worlds = torch.export.Dim("worlds", min=1)
    shapes = {"observation": {key: {0: worlds} for key in example[0]}, "noise": {0: worlds}}
    with torch.no_grad(), quiet("torch.export"):
        return torch.export.export(Decision(policy).eval(), example, dynamic_shapes=shapes, strict=False)


def example_inputs(policy: LearnedPolicy, worlds: int, seed: int = 0) -> tuple[dict[str, Tensor], Tensor]:
    """Features and noise as `policy` may meet them, on its device: vectors spread as its statistics say, random
    pictures."""
    statistics = policy.normalizer if isinstance(policy, ChunkPolicy) else policy.statistics
    observe: dict[str, int] = policy.net.encoder.steps if isinstance(policy, ChunkPolicy) else {}
    random = torch.Generator().manual_seed(seed)
    observation: dict[str, Tensor] = {}
    for key, spec in sorted(policy.interface.observation.items()):
        steps = observe.get(key, 1)
        shape = (worlds, *((steps,) if steps > 1 else ()), *spec.shape)
        if is_image(spec):
            observation[key] = torch.randint(256, shape, generator=random, dtype=torch.uint8).to(policy.device)
        else:
            value = torch.randn(shape, generator=random).to(policy.device)
            observation[key] = statistics.vector_back(key, value)
    return observation, torch.randn(worlds, *policy.noise.shape, generator=random).to(policy.device)


@contextmanager
def quiet(*names: str) -> Iterator[None]:
    """Within, these loggers say nothing below an error: exporters warn of libraries that nobody needs."""
    loggers = [logging.getLogger(name) for name in names]
    before = [logger.level for logger in loggers]
    try:
        for logger in loggers:
            logger.setLevel(logging.ERROR)
        yield
    finally:
        for logger, level in zip(loggers, before, strict=True):
            logger.setLevel(level)
