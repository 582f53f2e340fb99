"""Proposals that take their time, and that keep to the middle of what was shown."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pytest
import torch

from policies.storage.checkpoint import save_policy
from policies.storage.loading import open_policy
from policies.wrappers.best_of_n import DRAWS, BestOfNPolicy
from robolearn.core import BadInput
from robolearn.rl.algorithms.proposals import Proposals
from robolearn.rl.off_policy_settings import ProposalsConfig
from robots.chunk_execution import Delayed

sys.path.insert(0, str(Path(__file__).parent))
from corridor import SMALL, base


def test_late_proposals_are_of_then_and_chosen_by_now() -> None:
    """Predictions of then, continued from where the arm is (`robots.chunk_execution`); all
    critics prefer the largest sum."""
    policy = base(horizon=4, execute=2)
    algorithm = Proposals(policy, ProposalsConfig(**SMALL, delay_steps=2), seed=0)
    algorithm.policy.trusted.fill_(1.0)
    met: list[torch.Tensor] = []

    def by_sum(features: torch.Tensor, candidates: torch.Tensor) -> torch.Tensor:
        met.extend((features, candidates))
        return candidates.sum(-1).expand(4, -1, -1)

    algorithm.policy.values = by_sum  # type: ignore[method-assign]
    then, now = {"proprio": np.full((3, 2), 0.2, np.float32)}, {"proprio": np.full((3, 2), -0.7, np.float32)}
    late = Delayed(then, np.full(3, 2), np.full((3, 1), 0.4, np.float32))
    algorithm.generator.manual_seed(7)
    chunk = algorithm.act(now, explore=True, delayed=late)
    torch.testing.assert_close(met[0], algorithm.policy.encode({"proprio": torch.from_numpy(now["proprio"])}))
    assert algorithm.policy.config.tempo == 0.0  # no twins
    proposer = algorithm.policy.proposer
    each = algorithm.policy.config.proposals
    noise = torch.randn(3, DRAWS * each, 4, 1, generator=torch.Generator().manual_seed(7))
    cond = proposer.net.encode(proposer.normalizer.observation({"proprio": torch.from_numpy(then["proprio"])}))
    with torch.no_grad():
        paths = proposer.net.sample(cond.repeat_interleave(DRAWS * each, 0), 0.5 * noise.flatten(0, 1))
    paths = proposer.normalizer.action_back(paths).clamp(-1.0, 1.0).unflatten(0, (3, -1))
    wanted = torch.from_numpy(late.catch_up(paths.numpy(), policy.interface, steps=2, keep=each)).flatten(2)
    torch.testing.assert_close(met[1], wanted)
    best = wanted[torch.arange(3), wanted.sum(-1).argmax(1)]
    np.testing.assert_allclose(chunk[..., 0], best.numpy(), atol=1e-6)


def test_proposals_keep_to_the_middle_and_the_base_does_not_change(tmp_path: Path) -> None:
    policy = base()
    algorithm = Proposals(policy, ProposalsConfig(**SMALL, proposal_noise=0.25), seed=0)
    assert policy.net.config.initial_noise_std == 1.0
    loaded = open_policy(save_policy(algorithm.policy, tmp_path / "policy"))
    assert isinstance(loaded, BestOfNPolicy) and loaded.proposer.net.initial_noise_std == 0.25
    seen, noise = {"proprio": torch.zeros(1, 2)}, torch.randn(1, 500, 2, 1, generator=torch.Generator().manual_seed(1))
    wide = Proposals(policy, ProposalsConfig(**SMALL, proposal_noise=1.0), seed=0).policy
    spread = [one.propose(seen, noise).std().item() for one in (loaded, wide)]
    assert spread[0] < 0.5 * spread[1]


@pytest.mark.parametrize("wrong", [{"delay_steps": -1}, {"proposal_noise": 1.5}])
def test_settings_that_make_no_sense(wrong: dict[str, float]) -> None:
    with pytest.raises(BadInput):
        ProposalsConfig(**wrong)  # type: ignore[arg-type]
