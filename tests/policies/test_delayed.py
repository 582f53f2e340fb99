"""Policies whose inference takes time: which steps of which prediction are executed, and what critics see."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from policies.normalize import Normalizer
from policies.policy import ChunkPolicy
from policies.settings import FlowConfig, NetworkConfig
from policies.wrappers.best_of_n import BestOfNConfig, BestOfNPolicy
from policies.wrappers.wrapper import DelayedPolicy
from robolearn.core import ArraySpec, BadInput, Interface, Policy

INTERFACE = Interface({"proprio": ArraySpec((1,))}, ArraySpec((1,)), 20.0)


class Counting(Policy):
    """Predicts for step t + i of what it sees at t: (t + i) / 100."""

    def __init__(self, horizon: int, execute: int) -> None:
        self.interface, self.execute_steps, self.horizon = INTERFACE, execute, horizon

    def act(self, observation):
        return ((observation["proprio"][:, None] + np.arange(self.horizon)[:, None]) / 100.0).astype(np.float32)


def play(policy: DelayedPolicy, steps: int) -> list[list[int]]:
    """The steps that the executed actions of two worlds were meant for; world 1's episode begins anew at step 4."""
    policy.reset(0)
    policy.begin(np.ones(2, np.bool_))
    done = []
    for t in range(steps):
        seen = {"proprio": np.array([[t], [t if t < 4 else 100 + t]], np.float32)}
        if t == 4:
            policy.begin(np.array([False, True]))
        if t % policy.execute_steps:
            policy.observe(seen)
        else:
            done.append([round(100 * float(a)) for a in policy.act(seen)[:, : policy.execute_steps].flatten()])
    return done


def test_a_long_prediction_says_what_to_do_now() -> None:
    """d = 3, Ta = 2, Tp = 5: at step t it is what o_{t−3} says of t and t + 1; a new episode knows nothing older."""
    assert play(DelayedPolicy(Counting(5, 2), 3), 8) == [
        [0, 1, 0, 1], [2, 3, 2, 3], [4, 5, 104, 105], [6, 7, 106, 107],
    ]  # fmt: skip
    assert play(DelayedPolicy(Counting(5, 2), 0), 4) == [[0, 1, 0, 1], [2, 3, 2, 3]]


def test_of_a_short_prediction_the_end_comes_too_late() -> None:
    """Tp = Ta = 2: what is executed at t was meant for t − 3."""
    assert play(DelayedPolicy(Counting(2, 2), 3), 8) == [[0, 1, 0, 1], [0, 1, 0, 1], [1, 2, 104, 105], [3, 4, 104, 105]]


def test_observations_are_kept_as_they_were() -> None:
    """A world may write over the array that it has handed out."""
    policy, seen = DelayedPolicy(Counting(3, 1), 2), {"proprio": np.zeros((1, 1), np.float32)}
    policy.reset(0)
    found = []
    for t in range(4):
        seen["proprio"][:] = 10 * t
        found.append(round(100 * float(policy.act(seen)[0, 0, 0])))
    assert found == [0, 1, 2, 12]  # o_0 + 0, o_0 + 1, o_0 + 2, o_1 + 2


def test_critics_choose_by_what_is_seen_now() -> None:
    torch.manual_seed(0)
    config = FlowConfig(horizon=4, execute=2, network=NetworkConfig(width=16, depth=2))
    proposer = ChunkPolicy(config.build(INTERFACE), Normalizer(INTERFACE), INTERFACE)
    policy = BestOfNPolicy(proposer, BestOfNConfig(proposals=3, tempo=0.0, width=8)).eval()
    policy.trusted.fill_(1.0)
    met: list[torch.Tensor] = []

    def values(features: torch.Tensor, candidates: torch.Tensor) -> torch.Tensor:
        met.extend((features, candidates))
        return candidates.sum(-1).expand(2, -1, -1)

    policy.values = values  # type: ignore[method-assign]
    late = DelayedPolicy(policy, 1)
    late.reset(5)
    late.observe({"proprio": np.full((4, 1), 0.3, np.float32)})
    chunk = late.act({"proprio": np.full((4, 1), -2.0, np.float32)})
    assert torch.equal(met[0], torch.full((4, 1), -2.0))
    # The proposals: steps 1 and 2 of what the same noise gives from the observation before.
    policy.reset(5)
    noise = torch.from_numpy(policy.noise.draw(4)).flatten(0, 1)
    cond = proposer.net.encode(proposer.normalizer.observation({"proprio": torch.full((4, 1), 0.3)}))
    with torch.no_grad():
        wanted = proposer.net.sample(cond.repeat_interleave(3, 0), noise)[:, 1:3].clamp(-1, 1).reshape(4, 3, 2)
    torch.testing.assert_close(met[1], wanted)
    best = wanted[torch.arange(4), wanted.sum(-1).argmax(1)]
    np.testing.assert_allclose(chunk[..., 0], best.numpy(), atol=1e-6)


def test_what_cannot_be_delayed_is_refused() -> None:
    with pytest.raises(BadInput, match="delay"):
        DelayedPolicy(Counting(2, 2), -1)
    with pytest.raises(BadInput, match="several observations"):
        DelayedPolicy(DelayedPolicy(Counting(2, 2), 1), 1)
