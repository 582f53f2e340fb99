"""Rewards of a rollout by a model: shaped by hand, across rollouts, resumed exactly, and enough to learn from."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch

from robolearn.core import BadInput, RewardWithheld, RobolearnError, Score, Window
from robolearn.eval import evaluate
from robolearn.rl.buffer import RolloutBatch, unscaled
from robolearn.rl.model_reward import ModelReward
from robolearn.rl.runner import Runner
from robolearn.rl.settings import NoiseConfig

Make = Callable[..., Any]
GAMMA, NEAR = 0.9, 0.15


class Nearness:
    """Progress is how near 0 the point is, and done is where the world would call it solved."""

    def __init__(self, sees: bool = True) -> None:
        self.prompts: list[str] = []
        self.firsts: list[float] = []
        self.sees = sees

    def score(self, windows: Sequence[Window], prompts: Sequence[str]) -> list[Score]:
        self.prompts += prompts
        self.firsts += [float(window.observation["proprio"][0, 0]) for window in windows]
        found = []
        for window in windows:
            x = np.abs(window.observation["proprio"][1:, 0])
            progress = (1.0 - np.minimum(x, 1.0)).astype(np.float32) if self.sees else np.ones(len(x), np.float32)
            done = (x < NEAR) & self.sees
            found.append(Score(progress, progress, done, np.ones(len(x), np.float32)))
        return found


def batch(x: list[float], after: list[float], ends: list[int], solved: list[int], worlds: int = 1) -> RolloutBatch:
    """Decisions of one world, or of two in turn."""
    count = len(x)
    seen, then = (torch.tensor([[value, 0.0] for value in values]) for values in (x, after))
    terminated, ended = (torch.tensor([i in which for i in range(count)]) for which in (solved, ends))
    grid = torch.arange(count).reshape(-1, worlds)
    rest = torch.ones(count)
    return RolloutBatch(
        {"proprio": seen}, {"proprio": then}, rest, rest, {}, torch.full((count,), 7.0), terminated, ended,
        terminated, grid,
        0, 0, np.zeros(0), np.zeros(0), count, 0.0, 0.0,
    )  # fmt: skip


def test_rewards_by_hand_and_over_the_border_of_rollouts(point: Make) -> None:
    model = Nearness()
    reward = ModelReward(model, point(1), GAMMA, ["proprio"])
    made, row = reward.fill(batch([0.8, 0.5, 0.7], [0.5, 0.1, 0.6], ends=[1], solved=[1]), unscaled)
    # 0.8 → 0.5: γ 0.5 − 0; → 0.1, the end: 1 + 0 − 0.5; a new one: γ 0.4 − 0
    assert made.reward.tolist() == pytest.approx([0.45, 0.5, 0.36], abs=1e-6)
    assert row.pop("progress") == pytest.approx(0.9)
    assert row.pop("withheld") == 0.0
    assert row == {"called_done": 1.0, "called_solved": 1.0, "called_failed": 0.0, "uncalled_solved": 0.0}
    assert model.prompts == ["come to 0"] * 2 and model.firsts == pytest.approx([0.8, 0.7])
    made, row = reward.fill(batch([0.6, 0.1], [0.1, 0.05], ends=[1], solved=[]), unscaled)
    assert row["called_failed"] == 1.0, "called done, and the clock ended it unsolved"
    # 0.6 → 0.1: 1 + γ 0.9 − 0.4; → 0.05 by the clock, which is no end of the task: γ 0.95 − 0.9, done only once
    assert made.reward.tolist() == pytest.approx([1 + 0.81 - 0.4, 0.855 - 0.9], abs=1e-6)
    assert model.firsts[2] == pytest.approx(0.7), "still against its own first frame"
    reward.begin()
    made, _ = reward.fill(batch([0.7], [0.7], ends=[], solved=[]), unscaled)
    assert made.reward.tolist() == pytest.approx([0.27], abs=1e-6)


def test_raw_differences_and_done_alone_by_hand(point: Make) -> None:
    for shaping, wanted in (("delta", [0.5, 0.9 - 0.5 + 1.0, 0.4]), ("none", [0.0, 1.0, 0.0])):
        reward = ModelReward(Nearness(), point(1), GAMMA, ["proprio"], shaping)  # type: ignore[arg-type]
        made, _ = reward.fill(batch([0.8, 0.5, 0.7], [0.5, 0.1, 0.6], ends=[1], solved=[1]), unscaled)
        assert made.reward.tolist() == pytest.approx(wanted, abs=1e-6), shaping


def test_worlds_side_by_side_and_the_scale_in_the_order_of_decisions(point: Make) -> None:
    seen: list[tuple[list[float], list[bool]]] = []

    def scale(reward: np.ndarray, ended: np.ndarray, worlds: np.ndarray) -> np.ndarray:
        seen.append((reward.tolist(), ended.tolist()))
        return 2 * reward

    reward = ModelReward(Nearness(), point(2), GAMMA, ["proprio"])
    made, _ = reward.fill(batch([0.8, -0.6, 0.5, -0.4], [0.5, -0.4, 0.4, -0.3], [3], [], worlds=2), scale)
    wanted = [0.45, 0.54, GAMMA * 0.6 - 0.5, GAMMA * 0.7 - 0.6]
    assert made.reward.tolist() == pytest.approx([2 * value for value in wanted], abs=1e-6)
    assert [ended for _, ended in seen] == [[False, False], [False, True]]


class Selective(Nearness):
    """Withholds the score of what begins, or goes on, at a place of `blind`."""

    def __init__(self, *blind: float) -> None:
        super().__init__()
        self.blind = blind

    def score(self, windows: Sequence[Window], prompts: Sequence[str]) -> list[Score]:
        if any(np.isclose(window.observation["proprio"][:2, 0], x).any() for window in windows for x in self.blind):
            raise RewardWithheld("too dark")
        return super().score(windows, prompts)


def test_an_episode_that_is_withheld_is_left_out_to_its_end_and_counted_there(point: Make) -> None:
    """World 0 is blind from its start; that of world 1 is scored, and the rest of both goes on in a second rollout."""
    seen: list[tuple[list[float], list[bool], list[bool]]] = []

    def scale(reward: np.ndarray, ended: np.ndarray, worlds: np.ndarray) -> np.ndarray:
        seen.append((reward.tolist(), ended.tolist(), worlds.tolist()))
        return reward

    reward = ModelReward(Selective(0.7), point(2), GAMMA, ["proprio"])
    made, row = reward.fill(batch([0.7, -0.6, 0.5, -0.4], [0.5, -0.4, 0.4, -0.3], [3], [], worlds=2), scale)
    assert row["withheld"] == 0.0 and made.grid.tolist() == [[-1, 0], [-1, 1]]
    assert made.reward.tolist() == pytest.approx([GAMMA * 0.6, GAMMA * 0.7 - 0.6])
    assert made.observation["proprio"][:, 0].tolist() == pytest.approx([-0.6, -0.4]) and len(made) == 2
    assert [worlds for _, _, worlds in seen] == [[False, True]] * 2
    state = {key: value.clone() for key, value in reward.state().items()}
    reward = ModelReward(Nearness(), point(2), GAMMA, ["proprio"])  # that withholds nothing any more
    reward.load_state(state)
    seen.clear()
    made, row = reward.fill(batch([0.4, -0.2, 0.6, 0.9], [0.3, -0.1, 0.5, 0.8], [0], [], worlds=2), scale)
    assert row["withheld"] == 1.0 and row.get("called_done") is None, "the one that was blind has ended"
    assert made.observation["proprio"][:, 0].tolist() == pytest.approx([-0.2, 0.6, 0.9]), "the next one is seen"
    assert seen[0][1:] == ([True, False], [False, True]), "the scale begins anew with it"


def test_a_rollout_without_any_score_ends_the_run(point: Make) -> None:
    reward = ModelReward(Selective(0.7, -0.6), point(2), GAMMA, ["proprio"])
    with pytest.raises(RobolearnError, match="all episodes of a rollout are withheld"):
        reward.fill(batch([0.7, -0.6], [0.5, -0.4], [], [], worlds=2), unscaled)


def test_what_was_not_scored_is_nothing_to_compare_with(point: Make, make_policy: Make, kit: Any) -> None:
    """In a group of GRPO an episode that is left out counts neither as its own nor in the mean of the others."""
    made = kit.runner(point(8), algo="grpo").algorithm
    credits: list[torch.Tensor] = []
    made._improve = lambda batch, advantage, progress: credits.append(advantage) or {}
    whole = batch([0.5] * 8, [0.4] * 8, list(range(8)), [0, 1], worlds=8)
    reward = torch.tensor([1.0, 0.0, 0.5, 0.5, 0.5, 0.5, 0.5, 0.5])
    row = made.update(replace(whole, reward=reward).only(torch.arange(8) != 2), 0, 0.0)
    group = made.group.tolist()
    mates = [i for i in range(8) if group[i] == group[0] and i != 2]
    mean = float(reward[mates].mean())
    assert credits[0].tolist()[:2] == pytest.approx([1.0 - mean, 0.0 - mean]) and len(credits[0]) == 7
    assert row["return"] == pytest.approx(3.5 / 7)


@pytest.mark.long
@pytest.mark.parametrize("algo", ["reinflow", "dppo", "grpo"])
def test_it_goes_on_where_some_episodes_are_withheld(point: Make, make_policy: Make, kit: Any, algo: str) -> None:
    class Half(Nearness):
        def score(self, windows: Sequence[Window], prompts: Sequence[str]) -> list[Score]:
            if any(window.observation["proprio"][0, 0] > 0.6 for window in windows):
                raise RewardWithheld("too far to the right")
            return super().score(windows, prompts)

    world = point(8)
    policy = make_policy(world.interface, horizon=2, execute=2, gain=5.0)
    config = kit.runner(world, policy, algo).config
    runner = Runner(policy, point(8), config, 2000, 0, model=Half())
    rows = kit.run(runner, 0, 4)
    assert sum(row["withheld"] for row in rows) > 0
    assert all(
        torch.isfinite(value).all() for value in runner.algorithm.state()[0].values() if value.is_floating_point()
    )


@pytest.mark.long
@pytest.mark.parametrize("algo", ["reinflow", "grpo"])
def test_a_resumed_run_goes_on_bit_for_bit(point: Make, make_policy: Make, kit: Any, algo: str) -> None:
    def begin() -> Runner:
        world = point(8)
        policy = make_policy(world.interface, horizon=2, execute=2, gain=5.0)
        made = kit.runner(world, policy, algo)
        return Runner(policy, point(8), made.config, 2000, 0, model=Nearness())

    whole, again = begin(), begin()
    kit.run(whole, 0, 2)
    state, meta = whole.state()
    again.load_state({key: value.clone() for key, value in state.items()}, meta)
    rows = kit.run(whole, 2, 4)
    assert all("called_done" in row or row["episodes"] == 0 for row in rows)
    np.testing.assert_equal(kit.run(again, 2, 4), rows)
    kit.assert_same(kit.tensors(whole), kit.tensors(again))


def test_what_a_model_needs_is_asked_for(point: Make, kit: Any, make_policy: Make) -> None:
    model: Any = Nearness()
    model.reads = ("images.front",)
    with pytest.raises(BadInput, match=r"does not see images.front"):
        ModelReward(model, point(2), GAMMA, ["proprio"])
    with pytest.raises(BadInput, match="move together"):
        ModelReward(Nearness(), point(2, together=True), GAMMA, ["proprio"])
    made = kit.runner(point(8))
    calibrated = kit.runner(point(8), noise=kit.CALIBRATED).config
    policy = make_policy(made.env.interface, horizon=2, execute=2)
    with pytest.raises(BadInput, match="chosen by measurement"):
        Runner(policy, point(8), calibrated, 2000, 0, model=Nearness())


@pytest.mark.long
def test_it_learns_from_one_that_sees_and_not_from_one_that_always_says_yes(
    make_policy: Make, point: Make, kit: Any
) -> None:
    """Without a look at the world's reward; a constant progress is a potential that says nothing."""
    torch.set_num_threads(1)
    noise = NoiseConfig(sigma_min=0.3, sigma_max=0.6)
    settings: dict[str, Any] = {"chunks_per_rollout": 8, "critic_epochs": 2, "critic_warmup": 1, "minibatch": 256}
    settings |= {"actor_lr": 1e-3, "clip": 0.2, "target_kl": 0.04, "epochs": 4, "noise": noise}
    after = []
    for sees in (True, False):
        begun = make_policy(point(1).interface, width=64, steps=2, horizon=1, execute=1)
        config = kit.runner(point(128), begun, "reinflow", env_steps=48_000, **settings).config
        runner = Runner(begun, point(128), config, 48_000, 0, model=Nearness(sees))
        i = 0
        while i < runner.iterations:
            runner.iterate(i)
            i += 1
        after.append(evaluate(point(100), runner.algorithm.policy(), 400, seed=1).success)
    assert after[0].low > 0.9
    assert after[1].high < 0.6
