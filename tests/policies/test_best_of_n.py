"""Policies whose chunks critics choose: the choice by hand, what a tempo stretches, checkpoints that do not fit."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import torch

from policies.normalize import Normalizer
from policies.policy import ChunkPolicy
from policies.settings import FlowConfig, NetworkConfig
from policies.storage.checkpoint import load_policy, save_policy
from policies.wrappers.best_of_n import BestOfNConfig, BestOfNPolicy
from robolearn.core import ArraySpec, BadInput, Interface, NonFinite


def make(kind: str = "tcp_delta", **settings: float) -> BestOfNPolicy:
    torch.manual_seed(0)
    interface = Interface(
        {"proprio": ArraySpec((3,))}, ArraySpec((2,), names=("dx", "gripper")), 20.0, action_kind=kind
    )
    config = FlowConfig(horizon=3, execute=2, network=NetworkConfig(width=16, depth=2))
    proposer = ChunkPolicy(config.build(interface), Normalizer(interface), interface)
    policy = BestOfNPolicy(proposer, BestOfNConfig(width=16, **settings))  # type: ignore[arg-type]
    policy.trusted.fill_(1.0)
    return policy.eval()


def test_the_first_proposal_stays_unless_critics_agree() -> None:
    policy = make(caution=1.0)
    # Two critics. Ahead of candidate 0: 1 by (0, 2), mean 1, deviation 1; 2 by (.4, .5), mean .45, deviation .05.
    table = torch.tensor([[0.5, 0.5, 0.9], [0.1, 2.1, 0.6]])[:, None]
    assert policy.choose(table).tolist() == [2]
    assert make(caution=0.0).choose(table).tolist() == [1]
    # Both are behind for the one or the other critic: nothing is surely better than the first.
    assert policy.choose(torch.tensor([[0.5, 0.4, 0.9], [0.5, 1.1, 0.1]])[:, None]).tolist() == [0]
    # What critics think of all candidates alike says nothing.
    assert policy.choose(table + torch.tensor([5.0, -5.0])[:, None, None]).tolist() == [2]
    policy.trusted.fill_(0.0)
    assert policy.choose(table).tolist() == [0]


def test_a_tempo_stretches_displacements_and_no_gripper() -> None:
    proposals = torch.tensor([[[0.4, 0.4, 0.8, -1.0], [0.2, 1.0, -0.9, 0.0]]])
    found = make().candidates(proposals, torch.tensor([[1.5, 0.5]]))
    assert torch.equal(found[:, :2], proposals)
    torch.testing.assert_close(found[0, 2:], torch.tensor([[0.6, 0.4, 1.0, -1.0], [0.1, 1.0, -0.45, 0.0]]))
    for_joints = make("joint_position").candidates(proposals, torch.tensor([[1.5, 0.5]]))
    assert torch.equal(for_joints[:, 2:], proposals)
    assert torch.equal(make(tempo=0.0).candidates(proposals, torch.ones(1, 2)), proposals)


@pytest.mark.parametrize("large", [True, False])
def test_it_acts_by_the_best_of_its_candidates(large: bool) -> None:
    """Critics that like a large first displacement, or a small one: of four proposals and their twins that one is
    executed. By hand: the four twins have tempos from 1 + τ to 1 − τ/2."""
    policy, seen = make(), {"proprio": np.zeros((5, 3), np.float32)}
    sign = 1.0 if large else -1.0
    policy.values = lambda f, candidates: sign * candidates[..., 0].abs().expand(2, -1, -1)  # type: ignore[method-assign]
    policy.reset(1)
    acted = np.abs(policy.act(seen)[:, 0, 0])
    policy.noise.reset(1)
    proposals = policy.propose({"proprio": torch.zeros(5, 3)}, torch.from_numpy(policy.noise.draw(5)))[..., 0].abs()
    twins = (torch.tensor([1.5, 1.25, 1.0, 0.75]) * proposals).clamp(max=1.0)
    every = torch.cat((proposals, twins), 1).detach()
    np.testing.assert_allclose(acted, (every.amax(1) if large else every.amin(1)).numpy(), rtol=1e-5)


def test_a_world_s_actions_do_not_depend_on_the_others() -> None:
    policy, seen = make(), np.random.default_rng(0).standard_normal((6, 3)).astype(np.float32)
    policy.reset(4)
    together = policy.act({"proprio": seen})
    policy.reset(4)
    np.testing.assert_allclose(policy.act({"proprio": seen[:2]}), together[:2], atol=1e-6)
    assert together.shape == (6, 2, 2)


def test_values_that_are_not_numbers_move_nothing() -> None:
    policy = make()
    with pytest.raises(NonFinite):
        policy.act({"proprio": np.full((1, 3), np.nan, np.float32)})


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"proposer": None}, "proposer"),
        ({"proposer": {"kind": "chosen", "settings": {}, "proposer": {"kind": "flow", "settings": {}}}}, "proposer"),
        ({"settings": {"critics": 10**9}}, "critics"),
        ({"settings": {"reach": 1.0}}, "reach"),
        ({"kind": "best"}, "kind"),
    ],
)
def test_a_config_that_does_not_fit(tmp_path: Path, change: dict[str, object], said: str) -> None:
    folder = save_policy(make(), tmp_path)
    assert isinstance(load_policy(folder), BestOfNPolicy)
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(config | change))
    with pytest.raises(BadInput, match=said):
        load_policy(folder)
