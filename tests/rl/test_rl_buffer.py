"""What an on-policy algorithm learns from: final observations, time that remains, and the grid of decisions."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from robolearn.core import ArraySpec, Interface
from robolearn.rl.buffer import ReturnTracker, RolloutBatch, collect
from robolearn.rl.returns import RewardScale, gae
from robolearn.rollout import Decision, Decisions, Engine, Episodes

LENGTHS, TERMINATES, LIMIT = (3, 4, 8), (True, False, False), 8


class Diary:
    """Worlds whose observation is (world, episode, step): episodes of 3, terminated; of 4, truncated; of 8, the limit.

    The reward of a step is the number of the world's steps so far in the episode. The arrays of observations are the
    same ones all the time, as a world may well do.
    """

    num_envs, max_episode_steps, task, prompt = 3, LIMIT, "diary", ""
    interface = Interface({"proprio": ArraySpec((3,))}, ArraySpec((1,)), control_hz=10.0)

    def __init__(self, early: int = -1, together: bool = False) -> None:
        self.early, self.steps_together = early, together  # a world that is solved by the first step of each episode
        self.page = np.array([[w, 0, 0] for w in range(3)], dtype=np.float32)
        self.final = np.zeros((3, 3), dtype=np.float32)
        self.flags = np.zeros((3, 3), dtype=bool)
        self.seen: list[np.ndarray] = []

    def reset(self, *, seed: int | None = None, options: dict | None = None) -> tuple[dict, dict]:
        self.page[:, 1:] = 0
        return {"proprio": self.page}, {}

    def step(self, actions: np.ndarray, active: np.ndarray | None = None) -> tuple:
        assert active is None or not self.steps_together
        self.seen.append(actions.copy())
        self.final[:] = -1  # rubbish where nothing ended
        terminated, truncated, success = self.flags
        self.flags[:] = False
        reward = np.zeros(3, np.float32)
        for w in np.flatnonzero(np.ones(3, bool) if active is None else active):
            self.page[w, 2] += 1
            reward[w] = self.page[w, 2]
            success[w] = w == self.early and self.page[w, 2] == 1
            if self.page[w, 2] == LENGTHS[w]:
                terminated[w], truncated[w] = TERMINATES[w], not TERMINATES[w]
                success[w] |= TERMINATES[w]
                self.final[w] = self.page[w]
                self.page[w, 1:] = self.page[w, 1] + 1, 0
        infos = {"success": success, "final_obs": {"proprio": self.final}, "_final_obs": terminated | truncated}
        return {"proprio": self.page}, reward, terminated, truncated, infos


def play(early: int = -1, together: bool = False, quota=None, returns=None) -> tuple[RolloutBatch, Diary, Engine]:
    world = Diary(early, together)
    engine = Engine(world)  # type: ignore[arg-type]
    engine.reset(0)
    ends: list[tuple[np.ndarray, np.ndarray]] = []

    def scale(reward: np.ndarray, ended: np.ndarray, worlds: np.ndarray) -> np.ndarray:
        ends.append((ended.copy(), worlds.copy()))
        return reward * 10

    def act(seen: dict[str, torch.Tensor]) -> Decision:
        chunk = seen["proprio"][:, None, 2:].repeat(1, 2, 1) / 10
        return Decision(chunk.numpy(), {"chain": 5.0 * seen["proprio"][:, None, :].repeat(1, 2, 1)})

    batch = collect(
        engine,
        act,
        quota or Decisions(4),
        lambda o: {"proprio": torch.tensor(o["proprio"])},
        device=torch.device("cpu"),
        scale=scale,
        returns=returns,
    )
    assert engine.elapsed.tolist() == world.page[:, 2].tolist()
    assert all((ended <= worlds).all() for ended, worlds in ends)
    assert batch.ended.sum() == batch.episodes
    all_ends = sum(ended.sum() for ended, _ in ends)  # those beyond a world's quota, too
    assert all_ends >= batch.episodes if together else all_ends == batch.episodes
    return batch, world, engine


modes = pytest.mark.parametrize("together", [False, True], ids=["may-rest", "together"])


@modes
def test_what_follows_a_decision_is_the_final_observation_where_an_episode_ended(together: bool):
    batch, _, _ = play(together=together)
    seen, after = batch.observation["proprio"][batch.grid], batch.next_observation["proprio"][batch.grid]
    assert seen[:, :, 0].tolist() == after[:, :, 0].tolist() == [[0, 1, 2]] * 4, "every row in its world's column"
    # World 0, two steps a decision: 0→2, 2→3 and terminated, then the next episode from 0.
    assert seen[:, 0, 1:].tolist() == [[0, 0], [0, 2], [1, 0], [1, 2]]
    assert after[:, 0, 1:].tolist() == [[0, 2], [0, 3], [1, 2], [1, 3]]
    # World 1: 0→2, 2→4 and truncated.
    assert seen[:, 1, 1:].tolist() == [[0, 0], [0, 2], [1, 0], [1, 2]]
    assert after[:, 1, 1:].tolist() == [[0, 2], [0, 4], [1, 2], [1, 4]]
    assert after[:, 2, 2].tolist() == [2, 4, 6, 8]
    assert (batch.on_grid(batch.terminated.float()) > 0).tolist() == [[False] * 3, [True, False, False]] * 2
    ended = [[False] * 3, [True, True, False], [False] * 3, [True, True, True]]
    assert (batch.on_grid(batch.ended.float()) > 0).tolist() == ended
    # What the actor kept belongs to what it saw.
    torch.testing.assert_close(batch.aux["chain"], 5.0 * batch.observation["proprio"][:, None].repeat(1, 2, 1))


@modes
def test_the_time_that_remains_is_that_of_the_episode_it_belongs_to(together: bool):
    batch, _, _ = play(together=together)
    seen = batch.observation["proprio"][:, 2]  # steps of the episode so far
    after = batch.next_observation["proprio"][:, 2]
    torch.testing.assert_close(batch.time_remaining, 1 - seen / LIMIT)
    torch.testing.assert_close(batch.next_time_remaining, 1 - after / LIMIT)
    at_the_limit = after == LIMIT
    assert at_the_limit.any() and (batch.next_time_remaining[at_the_limit] == 0).all(), "none when the time is up"


def test_a_rollout_counts_what_was_done():
    returns = ReturnTracker(3)
    batch, _world, engine = play(returns=returns)
    assert batch.env_steps == (3 + 4) * 2 + 8 == engine.env_steps
    assert batch.episodes == 5 and batch.success == 2
    assert batch.on_grid(batch.reward)[:, 0].tolist() == [30, 30, 30, 30]  # ten times 1 + 2, 3
    assert batch.on_grid(batch.reward)[:, 2].tolist() == [30, 70, 110, 150]
    assert sorted(batch.returns.tolist()) == [6, 6, 10, 10, 36]  # unscaled
    assert returns.now.tolist() == [0, 0, 0]
    assert len(batch) == 12 and batch.aux["chain"].shape == (12, 2, 3)


@modes
def test_a_success_in_the_middle_of_an_episode_counts_once_when_it_ends(together: bool):
    batch, _, _ = play(early=1, together=together)  # its episodes end, truncated, a decision later
    assert (batch.success, batch.episodes) == (2 + 2, 5)


@modes
def test_the_same_decisions_whether_worlds_may_rest_or_not(together: bool):
    quota = Episodes(np.array([3, 1, 2]))
    batch, _world, _ = play(together=together, quota=quota)
    assert batch.grid.shape == (8, 3)
    counts = (batch.grid >= 0).sum(0).tolist()
    assert counts == [3 * 2, 1 * 2, 2 * 4]
    assert sorted(batch.grid[batch.grid >= 0].tolist()) == list(range(len(batch))), "every row once"
    for w in range(3):
        rows = batch.grid[: counts[w], w]
        assert (rows >= 0).all() and (batch.observation["proprio"][rows, 0] == w).all()
        episodes = batch.observation["proprio"][rows, 1]
        assert (episodes.diff() >= 0).all() and episodes.max() == quota.each[w] - 1


@modes
def test_values_go_to_the_grid_and_back(together: bool):
    batch, _, _ = play(together=together, quota=Episodes(np.array([3, 1, 2])))
    numbers = torch.arange(1.0, len(batch) + 1)
    grid = batch.on_grid(numbers)
    assert (grid[batch.grid < 0] == 0).all() and grid[batch.grid >= 0].min() == 1
    assert torch.equal(batch.from_grid(grid), numbers)


@modes
def test_advantages_on_the_grid_are_those_of_each_world_alone(together: bool):
    """Also where worlds make different numbers of decisions, and their rows lie mixed."""
    batch, _, _ = play(together=together, quota=Episodes(np.array([3, 1, 2])))
    rng = np.random.default_rng(0)
    value, after = (torch.from_numpy(rng.normal(size=len(batch))) for _ in range(2))
    columns = (batch.reward.double(), value, after, batch.terminated.double(), batch.ended.double())
    reward, v, v_after, terminated, ended = (batch.on_grid(column) for column in columns)
    advantage = batch.from_grid(gae(reward, v, v_after, terminated > 0, ended > 0, 0.9, 0.8)[0])
    for w in range(3):
        rows = [row for row in batch.grid[:, w].tolist() if row >= 0]
        running = 0.0
        for row in reversed(rows):
            bootstrap = 0.0 if batch.terminated[row] else 0.9 * after[row].item()
            delta = batch.reward[row].item() + bootstrap - value[row].item()
            running = delta + (0.0 if batch.ended[row] else 0.9 * 0.8 * running)
            assert advantage[row].item() == pytest.approx(running, rel=1e-6)


@modes
def test_a_rollout_goes_on_where_the_last_one_stopped(together: bool):
    returns = ReturnTracker(3)
    world = Diary(together=together)
    engine = Engine(world)  # type: ignore[arg-type]
    engine.reset(0)

    def go(decisions: int) -> RolloutBatch:
        return collect(
            engine,
            lambda seen: Decision(np.zeros((3, 2, 1), np.float32), {}),
            Decisions(decisions),
            lambda o: {"proprio": torch.tensor(o["proprio"])},
            device=torch.device("cpu"),
            returns=returns,
        )

    parts = [go(1), go(1), go(2)]
    whole, _, _ = play()
    if not together:  # those that step together go on while the slowest world ends its decision
        seen = torch.cat([part.observation["proprio"][part.grid] for part in parts])
        assert torch.equal(seen, whole.observation["proprio"][whole.grid])
        remaining = torch.cat([part.time_remaining[part.grid] for part in parts])
        torch.testing.assert_close(remaining, whole.time_remaining[whole.grid])
        assert sorted(np.concatenate([part.returns for part in parts])) == sorted(whole.returns)
    for part in parts:
        torch.testing.assert_close(part.time_remaining, 1 - part.observation["proprio"][:, 2] / LIMIT)


@modes
def test_a_return_is_that_of_the_whole_episode_whatever_counts(together: bool):
    """Worlds that cannot rest go on beyond their decisions: into an episode that counts later, or out of one."""
    world, returns, scale = Diary(together=together), ReturnTracker(3), RewardScale(3, gamma=1.0)
    engine = Engine(world)  # type: ignore[arg-type]
    engine.reset(0)
    seen: list[float] = []
    for i in range(24):
        batch = collect(
            engine,
            lambda seen: Decision(np.zeros((3, 3, 1), np.float32), {}),
            (Episodes(np.array([0, 0, 1])), Decisions(1), Decisions(2))[i % 3],
            lambda o: {"proprio": torch.tensor(o["proprio"])},
            device=torch.device("cpu"),
            scale=scale,
            returns=returns,
        )
        steps = world.page[:, 2].astype(int)  # of the running episodes, whose steps bring 1 + 2 + … so far
        so_far = [sum(range(1, k + 1)) for k in steps]
        assert returns.now.tolist() == so_far
        assert scale.state()[3:].tolist() == so_far, "undiscounted, the scale remembers the same"
        seen += batch.returns.tolist()
    assert set(seen) == {6, 10, 36}


@modes
def test_an_observation_is_converted_once_and_final_ones_apart(together: bool):
    """Not as the one after a decision and again as the one before the next."""
    engine, asked = Engine(Diary(together=together)), []  # type: ignore[arg-type]
    engine.reset(0)

    def features(observation: dict) -> dict[str, torch.Tensor]:
        asked.append(len(observation["proprio"]))
        return {"proprio": torch.tensor(observation["proprio"])}

    # Decisions of two steps in episodes of 3, 4 and 8 come to their end after 2, 3, 4, 5, 6 and 8 steps.
    turns = 6 if together else 4
    act = lambda seen: Decision(np.zeros((3, 2, 1), np.float32), {})  # noqa: E731
    batch = collect(engine, act, Decisions(4), features, device=torch.device("cpu"))
    assert batch.episodes == 5 and sum(asked) == 3 * (1 + turns) + 5
