"""Offline, then on-policy: begun as what acted and its value, by fresh rollouts alone, exact resumption, the dip."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from robolearn.cli.finetune_numbers import switched
from robolearn.core import BadInput
from robolearn.data.replay import PlayedEpisode
from robolearn.rl.algorithms import ReplayConfig
from robolearn.rl.offline_runner import FreshRunner
from robolearn.rl.student_settings import UniO4Config

Make = Callable[..., Any]
SMALL: dict[str, Any] = {"critics": 3, "width": 16, "depth": 1, "batch": 16, "trust_after": 2, "gate_every": 2,
                         "decisions": 4, "sigma": 0.2}  # fmt: skip


def played(episodes: int = 12) -> list[PlayedEpisode]:
    """The point goes to 0 in every other episode; elsewhere it goes away until the clock ends it."""
    found = []
    for e in range(episodes):
        x, good = [np.linspace(0.5, 0.8, episodes)[e] * (-1) ** (e // 2)], e % 2 == 0
        actions = []
        while len(actions) < 4 and abs(x[-1]) >= 0.15:
            actions.append(float(np.clip(-x[-1] / 0.3 if good else np.sign(x[-1]), -1, 1)))
            x.append(x[-1] + 0.3 * actions[-1])
        seen = np.stack([x, np.arange(len(x)) / 4], 1).astype(np.float32)
        reward = np.zeros(len(actions), np.float32)
        reward[-1] = abs(x[-1]) < 0.15
        good = bool(reward[-1])
        found.append(PlayedEpisode({"proprio": seen}, np.array(actions, np.float32)[:, None], reward,
                                   np.zeros(len(actions), bool), good, good))  # fmt: skip
    return found


@pytest.fixture(autouse=True)
def blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Iterations offline have five updates."""
    monkeypatch.setattr("robolearn.rl.offline_runner.BLOCK", 5)


def begun(make_policy: Make, point: Make, updates: int = 7, env_steps: int = 200) -> Any:
    """A runner; without worlds where `env_steps` is 0."""
    world = point(4)
    policy = make_policy(world.interface, horizon=2, execute=2, gain=20.0)
    config = ReplayConfig(num_envs=4, updates=updates, algorithm=UniO4Config(**SMALL))
    return config.runner(policy, world if env_steps else None, env_steps, 0, "", played())


@pytest.mark.long
def test_it_goes_on_from_what_acted_and_from_its_value_by_fresh_rollouts_alone(make_policy: Make, point: Make) -> None:
    """Two iterations of 5 and 2 updates offline; online an iteration has 4 worlds x 4 decisions x 2 steps."""
    runner = begun(make_policy, point)
    assert isinstance(runner, FreshRunner) and runner.iterations == 2 + 200 // 32
    rows = [runner.iterate(i) for i in range(2)]
    assert [row["env_steps"] for row in rows] == [0, 0] and runner.env.executed == 0
    acts = {key: value.clone() for key, value in runner.algorithm.policy.proposer.net.state_dict().items()}
    seen = {"proprio": torch.randn(5, 2, generator=torch.Generator().manual_seed(0))}
    worth = runner.algorithm.next_value(seen).detach().clone()
    runner.experience.sample = lambda *_: pytest.fail("a replayed batch")  # type: ignore[method-assign]
    makes, made, met = runner.switched, [], []

    def switched_to() -> Any:
        made.append(makes())
        baseline, first = made[0].algorithm.baseline, made[0].algorithm.net
        fit = baseline.fit
        baseline.fit = lambda batch, target: met.append((batch, target)) or fit(batch, target)
        assert all(torch.equal(value, acts[key]) for key, value in first.state_dict().items())
        return made[0]

    runner.switched = switched_to  # type: ignore[method-assign]
    row = runner.iterate(2)
    assert row["env_steps"] == runner.env_steps == runner.env.executed > 0 and row["updates"] == 7
    learner, (begins, then) = made[0].algorithm, met
    torch.testing.assert_close(runner.algorithm.next_value(seen).detach(), worth)
    expected = runner.algorithm.next_value(begins[0].observation).detach() / learner.scale.std
    torch.testing.assert_close(begins[1], expected)
    assert not begins[1].requires_grad and not torch.equal(then[1], begins[1])
    assert any(not torch.equal(value, acts[key]) for key, value in learner.net.state_dict().items())
    runner.iterate(3)
    assert len(met) == 3, "the critic takes the value over once"


def test_the_online_settings_are_those_of_the_offline_phase() -> None:
    """γ of a decision of 4 steps; a noise of one size; the policy moves from the first rollout on."""
    online = UniO4Config(gamma=0.9, sigma=0.07, clip=0.15, decisions=7).online(6, 4)
    assert online.gamma == pytest.approx(0.9**4) and online.noise.sigma_range == (0.07, 0.07)
    assert (online.num_envs, online.clip, online.critic_warmup, online.chunks_per_rollout) == (6, 0.15, 0, 7)


@pytest.mark.long
@pytest.mark.parametrize("at", [1, 2, 3])
def test_a_resumed_run_goes_on_bit_for_bit(make_policy: Make, point: Make, kit: Any, at: int) -> None:
    """Stopped offline, at the switch and online."""
    whole, again = (begun(make_policy, point) for _ in range(2))
    kit.assert_goes_on(whole, again, at, 5)
    assert again.env_steps == whole.env_steps > 0 and again.iterations == whole.iterations


@pytest.mark.long
def test_an_offline_run_goes_on_in_worlds(make_policy: Make, point: Make, kit: Any) -> None:
    whole, offline, again = begun(make_policy, point), begun(make_policy, point, env_steps=0), begun(make_policy, point)
    kit.run(offline, 0, 2)
    again.load_state(*offline.state())
    expected = kit.run(whole, 0, 4)[2:]
    np.testing.assert_equal(kit.run(again, 2, 4), expected)


def test_without_an_offline_phase_or_a_budget_it_is_refused(make_policy: Make, point: Make) -> None:
    with pytest.raises(BadInput, match=r"--updates: got 0, expected some, with --data"):
        begun(make_policy, point, updates=0)
    with pytest.raises(BadInput, match="--env-steps"):
        begun(make_policy, point, env_steps=31)
    with pytest.raises(BadInput, match="--env-steps"):
        ReplayConfig(num_envs=4, algorithm=UniO4Config(**SMALL)).check_budget(4, 2, 31)


def test_the_dip_is_from_the_last_evaluation_offline_to_the_least_of_three_online(tmp_path: Path) -> None:
    rows = [(0, 0.5), (0, 0.9), (0, None), (64, None), (128, 0.88), (192, 0.85), (256, 0.95), (320, 0.1)]
    lines = [{"step": i, "env_steps": steps} | ({} if rate is None else {"eval_success": rate})
             for i, (steps, rate) in enumerate(rows)]  # fmt: skip
    (tmp_path / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    found = switched(tmp_path)
    assert found is not None and found["dip"] == pytest.approx(0.05)
    assert (found["offline"], found["online"]) == (0.9, [0.88, 0.85, 0.95])
    (tmp_path / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines[:4]))
    assert switched(tmp_path) is None
