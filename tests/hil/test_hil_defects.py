"""Known defects of public implementations of the loop that have no test elsewhere.

The others: time limits, boundaries, success at step zero, float images: `tests/data/test_replay.py`; a resumption that
forgets the actor: `test_hil_loop.py`; frames: `test_hil_hand.py`.
"""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pytest
import torch

from policies.networks.ensemble import EnsembleMlp
from policies.normalize import Normalizer
from policies.policy import ChunkPolicy
from policies.settings import FlowConfig, NetworkConfig
from robolearn.data.replay import PlayedEpisode, ReplayBuffer

sys.path.insert(0, str(Path(__file__).parent))
from classroom import INTERFACE, make_lesson

SMALLEST, LARGEST = 0.02, 0.04  # what the demonstrations ask for, of an action that goes from -1 to 1


def gentle() -> ChunkPolicy:
    """A policy whose actions lie between `SMALLEST` and `LARGEST`; normalised they fill -1 to 1."""
    torch.manual_seed(0)
    config = FlowConfig(horizon=3, execute=3, network=NetworkConfig(width=8, depth=1))
    statistics = {"proprio": {"mean": [0.0, 0.0], "std": [1.0, 1.0]}, "action": {"min": [SMALLEST], "max": [LARGEST]}}
    return ChunkPolicy(config.build(INTERFACE), Normalizer.from_statistics(INTERFACE, statistics), INTERFACE)


@pytest.mark.parametrize("seed", [0, 1])
def test_critics_are_shown_actions_in_one_unit(monkeypatch: pytest.MonkeyPatch, seed: int) -> None:
    """HIL-SERL's critic sees raw actions while its actor emits normalised ones. Here whatever the critics judge, what
    was executed and what is proposed, is in the world's unit."""
    algorithm = make_lesson(trust_after=1).settings.build(gentle(), seed=3)
    judged: list[torch.Tensor] = []
    forward = EnsembleMlp.forward

    def spy(self: EnsembleMlp, x: torch.Tensor, *rest: object, **named: object) -> torch.Tensor:
        judged.append(x.detach()[..., -algorithm.size :].reshape(-1))
        return forward(self, x, *rest, **named)  # type: ignore[arg-type]

    monkeypatch.setattr(EnsembleMlp, "forward", spy)
    buffer = ReplayBuffer(INTERFACE, algorithm.chunk, 100)
    seen = np.random.default_rng(seed).normal(size=(30, 2)).astype(np.float32)
    action = np.linspace(SMALLEST, LARGEST, 29, dtype=np.float32)[:, None]
    zero = np.zeros(29, np.float32)
    buffer.add(PlayedEpisode({"proprio": seen}, action, zero, np.zeros(29, bool), False, False))
    batch = buffer.sample(16, 0.97, torch.Generator().manual_seed(seed))
    for _ in range(3):
        algorithm.update(batch)
    algorithm.act({"proprio": seen[:4]}, explore=True)
    assert len(judged) > 6
    for actions in judged:
        # A tempo may make a chunk half as quick again; normalised actions would go up to 1.
        assert actions.abs().max() < 3.0 * LARGEST
