"""What doubts foretell: AUROC against counted pairs, which decisions precede a failure, a person who is told."""

from __future__ import annotations

import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

from policies.normalize import Normalizer
from policies.policy import ChunkPolicy
from policies.settings import FlowConfig, NetworkConfig
from robolearn.core import ArraySpec, Interface
from robolearn.hil.agent import DoubleBufferedPolicy
from robolearn.hil.evaluation import auroc, failure_prediction, predict_failures
from robolearn.hil.operator_console import PageConsole
from robolearn.rl.algorithms.proposals import Proposals
from robolearn.rl.off_policy_settings import ProposalsConfig

sys.path.insert(0, str(Path(__file__).parent))
from classroom import INTERFACE, Classroom, make_lesson, play


def test_auroc_is_the_share_of_pairs_in_the_right_order() -> None:
    assert auroc([0.1, 0.4, 0.35, 0.8], [0, 0, 1, 1]) == 0.75  # 3 of the 4 pairs
    assert auroc([1.0, 1.0, 1.0], [0, 1, 1]) == 0.5  # ties count half
    assert auroc([3.0, 2.0, 1.0], [0, 0, 1]) == 0.0
    assert auroc([1.0, 2.0], [1, 1]) is None and auroc([1.0, 2.0], [0, 0]) is None
    rng = np.random.default_rng(0)
    doubt, positive = rng.integers(0, 9, 200) / 3.0, rng.random(200) < 0.3
    mine, others = doubt[positive][:, None], doubt[~positive][None]
    assert auroc(doubt, positive) == pytest.approx(((mine > others) + 0.5 * (mine == others)).mean())


def test_a_threshold_that_few_good_decisions_reach() -> None:
    doubt, positive = np.r_[np.arange(101.0), 94.0, 99.0, 200.0, 300.0], np.r_[np.zeros(101), np.ones(4)]
    found = failure_prediction(doubt, positive)
    assert found.threshold == 95.0 and found.recall == 0.75
    assert failure_prediction([1.0, 2.0], [False, False]).recall is None


class TwoLines:
    """World 0 is solved at step 4, world 1 never: the clock ends it after 12 steps. The observation is the step."""

    num_envs, max_episode_steps, steps_together = 2, 12, False
    reports_success, continuing, task, prompt = True, False, "lines", "go"
    interface = Interface({"proprio": ArraySpec((1,))}, ArraySpec((1,)), 20.0)

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[dict, dict]:
        self.count = np.zeros(2)
        return self._seen(), {}

    def step(self, actions: np.ndarray, active: Any = None) -> tuple:
        moving = np.ones(2, bool) if active is None else active
        self.count += moving
        solved, over = (self.count == [4, -1]) & moving, (self.count >= 12) & moving
        infos: dict[str, Any] = {"success": solved, "final_obs": self._seen()}
        self.count[solved | over] = 0
        return self._seen(), solved.astype(np.float32), solved, over, infos

    def _seen(self) -> dict[str, np.ndarray]:
        return {"proprio": self.count[:, None].astype(np.float32)}


class Doubting:
    """A chunk of two; its doubt is the step, its other doubt the opposite."""

    execute_steps, device, noise = 2, torch.device("cpu"), SimpleNamespace(shape=(1, 1))
    interface = TwoLines.interface

    def begin(self, worlds: np.ndarray) -> None:
        """Nothing."""

    def reset(self, seed: int) -> None:
        """Nothing."""

    def act(self, observation: Any) -> np.ndarray:
        return np.zeros((2, 2, 1), np.float32)

    def propose(self, seen: Any, noise: torch.Tensor) -> torch.Tensor:
        return noise

    def uncertainty(self, seen: dict[str, torch.Tensor], proposals: torch.Tensor) -> dict[str, torch.Tensor]:
        return {"step": seen["proprio"][:, 0], "opposite": -seen["proprio"][:, 0]}


def test_decisions_shortly_before_a_failure_are_the_positive_ones() -> None:
    """World 1 decides at 0 2 4 6 8 10 and fails at 12: within 4 steps of it are those at 8 and 10."""
    policy: Any = Doubting()
    env: Any = TwoLines()
    found, failures = predict_failures(env, policy, 0, within=4)
    assert failures == 1 and found["step"].auroc == 1.0 and found["opposite"].auroc == 0.0
    assert found["step"].recall == 1.0 and found["step"].threshold < 8.0
    assert predict_failures(env, policy, 0, within=0)[0]["step"].auroc is None
    # All six of world 1: those at 4 6 8 10 beat the 0 and 2 of world 0, 2 beats 0, and 0 and 2 tie once each.
    assert predict_failures(env, policy, 0, within=12)[0]["step"].auroc == pytest.approx((4 * 2 + 1 + 2 * 0.5) / 12)


def test_a_policy_whose_critics_differ_is_unsure_and_the_person_is_told(tmp_path: Path) -> None:
    torch.manual_seed(0)
    config = FlowConfig(horizon=3, execute=3, network=NetworkConfig(width=8, depth=1))
    base = ChunkPolicy(config.build(INTERFACE), Normalizer(INTERFACE), INTERFACE)
    seen = {"proprio": np.zeros((1, 2), np.float32)}

    def buffered(limit: float) -> DoubleBufferedPolicy:
        return DoubleBufferedPolicy(lambda: Proposals(base, ProposalsConfig(width=16, ask_for_help=limit), seed=0))

    for limit, unsure in ((0.0, False), (1e-6, True), (10.0, False)):
        acting = buffered(limit)
        acting.act(seen)
        assert acting.uncertain is unsure
    # By hand: the mean over the proposals of the deviation over the critics.
    policy = Proposals(base, ProposalsConfig(width=16), seed=0).policy
    features, proposals = torch.zeros(1, 2), torch.rand(1, 4, 3)
    values = torch.stack([policy.critics(torch.cat((features, proposals[:, i]), 1)) for i in range(4)], 2)[..., 0]
    doubts = policy.uncertainty({"proprio": torch.zeros(1, 2)}, proposals)
    wanted = (values - values.mean(0)).square().mean(0).sqrt().mean(1)
    torch.testing.assert_close(doubts["critics"], wanted, atol=1e-6, rtol=1e-4)
    torch.testing.assert_close(doubts["proposals"], proposals[0].std(0, correction=0).mean()[None])
    torch.testing.assert_close(doubts["value"], -values.mean()[None])


@pytest.mark.long
@pytest.mark.parametrize("limit", [1e-9, 100.0])
def test_the_person_at_the_console_hears_of_it(tmp_path: Path, limit: float) -> None:
    """From the learner's settings through the actor to the page."""
    shown: list[Any] = []
    console: Any = SimpleNamespace(show=shown.append, poll=lambda: ())
    person = PageConsole(console, INTERFACE, ())
    room = Classroom(tmp_path / "room", make_lesson(ask_for_help=limit), env_steps=30)
    play(tmp_path / "outbox", room.port, helper=None, console=person)
    room.close()
    later = [status.asks_help for status in shown if status.seconds > 0]  # at the first step nothing is chosen yet
    assert len(later) >= 20 and set(later) == {limit < 1.0}
    assert not any(status.asks_help for status in shown if status.seconds == 0)
