"""Replay: what a window may reach over, worked out by hand."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from robolearn.core import ArraySpec, BadInput, Interface
from robolearn.data.replay import PlayedEpisode, ReplayBuffer

INTERFACE = Interface(
    {"proprio": ArraySpec((2,)), "images.front": ArraySpec((4, 4, 3), "uint8")}, ArraySpec((1,)), 20.0
)
PLAIN = Interface({"proprio": ArraySpec((2,))}, ArraySpec((1,)), 20.0)
GAMMA = 0.5


def played(
    e: int,
    steps: int,
    *,
    helped: tuple[int, ...] = (),
    terminated: bool = False,
    success: bool = False,
    final: bool = True,
) -> PlayedEpisode:
    """proprio[t] = (e, t), action[t] = (10 e + t) / 100, reward 1 in the last step of a success."""
    t = np.arange(steps + final, dtype=np.float32)
    reward = np.zeros(steps, np.float32)
    reward[-1] = success
    return PlayedEpisode(
        {"proprio": np.stack([0 * t + e, t], 1)},
        ((10 * e + np.arange(steps, dtype=np.float32)) / 100)[:, None],
        reward,
        np.isin(np.arange(steps), helped),
        terminated,
        success,
    )


def all_windows(episode: PlayedEpisode, chunk: int = 3, n_step: int = 1) -> list[tuple]:
    """(t, actions that were executed, R, discount, next t) of each window, by the buffer."""
    buffer = ReplayBuffer(PLAIN, chunk, 100, n_step=n_step)
    buffer.add(episode)
    batch = buffer.gather(torch.arange(len(buffer)), GAMMA, torch.Generator().manual_seed(0))
    out = []
    for i in range(len(batch)):
        t = int(batch.observation["proprio"][i, 1])
        h = min(chunk, len(episode) - t)
        actions = [round(100 * float(a)) for a in batch.action[i, :h, 0]]
        after = int(batch.next_observation["proprio"][i, 1])
        out.append((t, actions, float(batch.reward[i]), float(batch.discount[i]), after))
    return out


def test_windows_up_to_a_time_limit_reach_its_last_sight_and_no_further() -> None:
    assert all_windows(played(0, 5)) == [
        (0, [0, 1, 2], 0.0, 0.125, 3),
        (1, [1, 2, 3], 0.0, 0.125, 4),
        (2, [2, 3, 4], 0.0, 0.125, 5),  # bootstrapped from what was seen when the clock ended it
    ]


def test_where_the_final_sight_is_not_known_nothing_is_bootstrapped_from_it() -> None:
    assert [w[0] for w in all_windows(played(0, 5, final=False))] == [0, 1]


def test_nothing_comes_after_the_end_of_the_task() -> None:
    found = all_windows(played(0, 4, terminated=True, success=True))
    assert [(t, actions, r, d) for t, actions, r, d, _ in found] == [
        (0, [0, 1, 2], 0.0, 0.125),
        (1, [1, 2, 3], 0.25, 0.0),  # γ² · 1
        (2, [2, 3], 0.5, 0.0),
        (3, [3], 1.0, 0.0),
    ]


def test_a_success_at_step_zero_is_one_window() -> None:
    found = all_windows(played(0, 1, terminated=True, success=True))
    assert [(t, a, r, d) for t, a, r, d, _ in found] == [(0, [0], 1.0, 0.0)]


def test_no_window_crosses_the_edge_of_an_intervention() -> None:
    """Policy 0 1 2 3, operator 4 5 6, policy 7 8 9: windows of three begin at 0 1 | 4 | 7."""
    assert [w[0] for w in all_windows(played(0, 10, helped=(4, 5, 6)))] == [0, 1, 4, 7]


def test_no_success_is_credited_across_an_intervention() -> None:
    episode = played(0, 8, helped=(3, 4), terminated=True, success=True)
    np.testing.assert_array_equal(episode.merits, [0, 0, 0, 1, 1, 1, 1, 1])
    failed = played(0, 8, helped=(3, 4), terminated=True)
    np.testing.assert_array_equal(failed.merits, [0, 0, 0, 1, 1, 0, 0, 0])
    np.testing.assert_array_equal(played(0, 3, terminated=True, success=True).merits, [1, 1, 1])


def test_n_step_returns_are_summed_up_to_boundaries_and_no_further() -> None:
    """Chunks of 2, returns over up to 2 of them; γ = ½, reward 1 in the last step of a success."""
    assert all_windows(played(0, 6, terminated=True, success=True), 2, 2) == [
        (0, [0, 1], 0.0, 0.0625, 4),
        (1, [1, 2], 0.0, 0.0625, 5),
        (2, [2, 3], 0.125, 0.0, 2),  # γ³ · 1 and nothing after it, though its own chunk ends before
        (3, [3, 4], 0.25, 0.0, 3),
        (4, [4, 5], 0.5, 0.0, 4),
        (5, [5], 1.0, 0.0, 5),
    ]
    # The clock ended it: as far as was seen, bootstrapped from there.
    limit = [(t, d, after) for t, _, _, d, after in all_windows(played(0, 5), 2, 2)]
    assert limit == [(0, 0.0625, 4), (1, 0.0625, 5), (2, 0.125, 5), (3, 0.25, 5)]
    unseen = [(t, d, after) for t, _, _, d, after in all_windows(played(0, 5, final=False), 2, 2)]
    assert unseen == [(0, 0.0625, 4), (1, 0.125, 4), (2, 0.25, 4)]
    # Policy 0 1 2, operator 3 4 5 and success: no return, and no value, from beyond the edge.
    helped = all_windows(played(0, 6, helped=(3, 4, 5), terminated=True, success=True), 2, 2)
    assert [(t, r, d, after) for t, _, r, d, after in helped] == [
        (0, 0.0, 0.125, 3), (1, 0.0, 0.25, 3), (3, 0.25, 0.0, 3), (4, 0.5, 0.0, 4), (5, 1.0, 0.0, 5),
    ]  # fmt: skip


def test_the_return_to_go_is_of_the_whole_episode() -> None:
    """γ = ½, reward 1 in the last of five steps: 1/16, 1/8, …, although windows are two steps long."""
    buffer = ReplayBuffer(PLAIN, 2, 100)
    buffer.add(played(0, 5, terminated=True, success=True))
    buffer.add(played(1, 4))
    buffer.add(played(2, 1, terminated=True, success=True))  # whose reward is not that of the episode before it
    batch = buffer.gather(torch.arange(len(buffer)), GAMMA, torch.Generator())
    assert batch.to_go.tolist() == [0.0625, 0.125, 0.25, 0.5, 1.0, 0.0, 0.0, 0.0, 1.0]


def test_windows_are_drawn_by_the_return_of_their_episode() -> None:
    """Three windows of return 0 and four of return 1, ω = ln 3: 4 · 3 of 3 + 4 · 3 draws are of the success."""
    buffer = ReplayBuffer(PLAIN, 2, 100)
    for e, success in ((0, False), (1, True)):
        buffer.add(played(e, 4, terminated=success, success=success))
    assert len(buffer) == 7
    for sharpness, share in ((float(np.log(3)), 12 / 15), (0.0, 4 / 7)):
        drawn = buffer.sample(20_000, GAMMA, torch.Generator().manual_seed(0), sharpness)
        assert float(drawn.observation["proprio"][:, 0].mean()) == pytest.approx(share, abs=0.012)
    same = ReplayBuffer(PLAIN, 2, 100)
    same.add(played(5, 4))
    assert len(same.sample(8, GAMMA, torch.Generator(), 3.0)) == 8  # all returns are one
    old = {key: value for key, value in buffer.state()[0].items() if key not in ("windows/returned", "windows/left")}
    same.load_state(old, buffer.state()[1])
    assert len(same.sample(8, GAMMA, torch.Generator(), 3.0)) == 8


def test_a_plan_goes_on_as_far_as_its_author_does() -> None:
    """Policy 0 1 2, operator 3 4 5 6 to the end: chunks of 2, plans of 4."""
    buffer = ReplayBuffer(PLAIN, 2, 100, plan=4)
    buffer.add(played(0, 7, helped=(3, 4, 5, 6), terminated=True))
    batch = buffer.gather(torch.arange(len(buffer)), GAMMA, torch.Generator())
    found = {
        int(seen[1]): [round(100 * float(a)) for a in plan[planned, 0]]
        for seen, plan, planned in zip(batch.observation["proprio"], batch.plan, batch.planned, strict=True)
    }
    assert found == {0: [0, 1, 2], 1: [1, 2], 3: [3, 4, 5, 6], 4: [4, 5, 6], 5: [5, 6], 6: [6]}
    # By default a plan is the chunk.
    same = ReplayBuffer(PLAIN, 2, 100)
    same.add(played(0, 7))
    batch = same.gather(torch.arange(len(same)), GAMMA, torch.Generator())
    assert torch.equal(batch.plan, batch.action) and torch.equal(batch.planned, batch.executed)


def test_windows_of_an_operator_alone() -> None:
    buffer = ReplayBuffer(PLAIN, 2, 100)
    buffer.add(played(0, 10, helped=(4, 5, 6)), only_interventions=True)
    batch = buffer.gather(torch.arange(len(buffer)), GAMMA, torch.Generator())
    assert batch.intervention.all() and batch.observation["proprio"][:, 1].tolist() == [4, 5]


def test_actions_that_were_never_executed_are_no_sign_of_the_end() -> None:
    buffer = ReplayBuffer(PLAIN, 3, 1000)
    for e in range(9):
        buffer.add(played(e, 6, terminated=True, success=True))
    batch = buffer.sample(2000, GAMMA, torch.Generator().manual_seed(1))
    last = batch.observation["proprio"][:, 1] == 5  # one action was executed, two stand for nothing
    padding = batch.action[last][:, 1:].flatten()
    assert len(padding.unique()) > 20
    assert abs(float(padding.mean()) - float(batch.action[:, 1:].mean())) < 0.05


def test_sampling_is_uniform_over_windows_and_repeatable() -> None:
    buffer = ReplayBuffer(PLAIN, 1, 100)
    buffer.add(played(0, 2, terminated=True))
    buffer.add(played(1, 6, terminated=True))
    batch = buffer.sample(8000, GAMMA, torch.Generator().manual_seed(3))
    share = float((batch.observation["proprio"][:, 0] == 1).float().mean())
    assert abs(share - 0.75) < 0.02
    again = buffer.sample(8000, GAMMA, torch.Generator().manual_seed(3))
    assert torch.equal(batch.action, again.action)


@pytest.mark.long
@pytest.mark.parametrize("capacity", [12, 25, 1100, 5000])
def test_the_oldest_are_forgotten_and_the_others_stay_as_they_were(capacity: int) -> None:
    buffer = ReplayBuffer(PLAIN, 2, capacity)
    lengths = [5, 7, 3, 9, 4, 8, 6] * 60
    for e, length in enumerate(lengths):
        buffer.add(played(e % 9, length))
    batch = buffer.gather(torch.arange(len(buffer)), GAMMA, torch.Generator())
    e, t = batch.observation["proprio"].T
    np.testing.assert_array_equal(batch.action[:, 0, 0], ((10 * e + t) / 100).float())
    np.testing.assert_array_equal(batch.next_observation["proprio"], torch.stack([e, t + 2], 1))
    rows = sum(length + 1 for length in lengths)
    expected = sum(length - 1 for length in lengths) if rows <= capacity else None
    assert len(buffer) == expected if expected is not None else 0 < len(buffer) <= capacity
    assert buffer.steps == sum(lengths) and buffer.episodes == len(lengths)


def test_pictures_lie_there_once_as_bytes() -> None:
    buffer = ReplayBuffer(INTERFACE, 2, 500)
    rng = np.random.default_rng(0)
    for _ in range(40):
        n = 10
        observation = {
            "proprio": rng.standard_normal((n + 1, 2)).astype(np.float32),
            "images.front": rng.integers(0, 256, (n + 1, 4, 4, 3), dtype=np.uint8),
        }
        buffer.add(PlayedEpisode(observation, np.zeros((n, 1), np.float32), np.zeros(n, np.float32),
                                 np.zeros(n, bool), False, False))  # fmt: skip
    assert buffer.bytes <= 500 * (48 + 4 * (2 + 1 + 1))
    batch = buffer.sample(3, GAMMA, torch.Generator())
    assert batch.observation["images.front"].dtype == torch.uint8


def test_what_does_not_fit_is_refused() -> None:
    with pytest.raises(BadInput, match="chunk, capacity"):
        ReplayBuffer(PLAIN, 5, 5)
    buffer = ReplayBuffer(PLAIN, 2, 10)
    with pytest.raises(BadInput, match="no windows"):
        buffer.sample(1, GAMMA, torch.Generator())
    with pytest.raises(BadInput, match="11 frames"):
        buffer.add(played(0, 10))
    with pytest.raises(BadInput, match=r"images\.front"):
        ReplayBuffer(INTERFACE, 2, 100).add(played(0, 3))
