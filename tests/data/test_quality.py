"""Measures against numbers worked out by hand, and the ranking of good, noisy, failed and broken episodes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from robolearn.core import ArraySpec, BadInput, Episode, Interface
from robolearn.data import Dataset, EpisodeWriter
from robolearn.data.quality import Demonstrations, assess
from robolearn.data.quality.comparison import (
    NEAR,
    action_divergence,
    alone,
    coverage,
    duplicates,
    neighbours,
    transition_diversity,
)
from robolearn.data.quality.motion import (
    command_jerk,
    idle,
    near_limits,
    spectral_arc_length,
    stale,
    trajectory_quality,
)
from robolearn.eval.quality_page import summary

HZ = 20.0


def demonstrations(*episodes: tuple[np.ndarray, np.ndarray], **fields) -> Demonstrations:
    """Of (state, action) pairs; the state is the body and the path as well."""
    state = np.concatenate([np.asarray(s, float) for s, _ in episodes])
    action = np.concatenate([np.asarray(a, float) for _, a in episodes])
    lengths = np.array([len(s) for s, _ in episodes])
    return Demonstrations(state=state, action=action, body=state, lengths=lengths, control_hz=HZ, path=state, **fields)


def reach(rng: np.random.Generator, noise: float = 0.0, length: int = 90) -> tuple[np.ndarray, np.ndarray]:
    """A proportional reach from a random start to a random goal, both observed, until it is there."""
    at, goal = rng.uniform(-1, 1, 3), rng.uniform(-1, 1, 3)
    states, actions = [], []
    for _ in range(length):
        action = np.clip(0.06 * (goal - at) + noise * rng.standard_normal(3), -1, 1)
        states.append(np.concatenate([at, goal]))
        actions.append(action)
        at = at + action
        if np.abs(goal - at).max() < 0.05:
            break
    return np.array(states), np.array(actions)


class TestNeighbours:
    def test_one_of_each_other_episode(self) -> None:
        values = np.array([[0.0], [0.01], [0.02], [0.1], [0.11], [5.0]])
        found = neighbours(values, np.array([0, 0, 0, 1, 1, 2]), k=3)
        assert found.index[0].tolist() == [3, 5, -1]
        assert found.index[3].tolist() == [2, 5, -1]
        assert found.mean(values)[0] == pytest.approx(2.55)

    def test_rests_do_not_hide_the_others(self) -> None:
        rest = np.zeros((400, 1))
        found = neighbours(np.concatenate([rest, [[1.0]]]), np.array([0] * 400 + [1]), k=2)
        assert (found.index[:400, 0] == 400).all()

    def test_one_episode_has_none(self) -> None:
        found = neighbours(np.arange(5.0)[:, None], np.zeros(5, np.int64))
        assert (found.index == -1).all() and np.isnan(found.mean(np.ones((5, 1)))).all()


class TestMeasures:
    def test_action_divergence_by_hand(self) -> None:
        place = np.array([[0.0], [10.0]])
        # In both places the first two say (+1, −1), the third the opposite: σ² = 1; ā = 0 seen from the first.
        same, other = np.array([[1.0], [1.0]]), np.array([[-1.0], [-1.0]])
        d = demonstrations((place, same), (place, same), (place, other), (place, other))
        # Seen from an episode: one neighbour of its own opinion (0), two of the other: ½ · 2² = 2. Their mean is the
        # variance of the opinions with n − 1 in its denominator, 4/3, as it should be of draws.
        near = neighbours(d.state, d.episode)
        assert action_divergence(d, near) == pytest.approx([4 / 3] * 4)
        alike = demonstrations((place, [[1.0], [-1.0]]), (place, [[1.0], [-1.0]]))
        assert action_divergence(alike, neighbours(alike.state, alike.episode)) == pytest.approx([0.0, 0.0])

    def test_actions_that_never_vary_do_not_diverge(self) -> None:
        place = np.array([[0.0], [1.0]])
        d = demonstrations((place, np.ones((2, 1))), (place, np.ones((2, 1))))
        assert action_divergence(d, neighbours(d.state, d.episode)) == pytest.approx([0.0, 0.0])

    @pytest.mark.parametrize("size", [3, 15])
    def test_actions_that_the_place_decides_do_not_diverge_in_any_dimension(self, size: int) -> None:
        rng = np.random.default_rng(2)
        gain = rng.standard_normal((size, 2)) / np.sqrt(size)
        episodes = [(place := rng.standard_normal((100, size)), place @ gain) for _ in range(30)]
        d = demonstrations(*episodes)
        found = action_divergence(d, neighbours(d.state, d.episode, limit=NEAR))
        assert np.nanmean(found) < 0.03, "0 by definition"
        # With noise whose variance is that of the place's effect, half of the variance is noise.
        noisy = demonstrations(*((s, a + a.std(axis=0) * rng.standard_normal(a.shape)) for s, a in episodes))
        found = action_divergence(noisy, neighbours(noisy.state, noisy.episode, limit=NEAR))
        assert np.nanmean(found) == pytest.approx(0.5, abs=0.1)

    @pytest.mark.parametrize("count", [2, 3, 9])
    def test_the_estimate_does_not_depend_on_how_many_neighbours_there_are(self, count: int) -> None:
        rng = np.random.default_rng(3)
        d = demonstrations(*((rng.uniform(size=(4000, 1)), rng.standard_normal((4000, 1))) for _ in range(count)))
        near = neighbours(d.state, d.episode)
        assert np.mean(action_divergence(d, near)) == pytest.approx(1.0, abs=0.03), "all of it is noise"

    def test_what_is_not_commanded_is_judged_by_the_scale_of_the_action(self) -> None:
        rng = np.random.default_rng(4)
        place = np.linspace(0, 1, 50)[:, None]
        action = np.concatenate([place, 1e-5 * rng.standard_normal((50, 1))], 1)
        episodes = [(place, action * scale) for scale in (1.0, 1.0)]
        small = [(place, a + [0.0, 1e-5] * rng.standard_normal((50, 2))) for _, a in episodes]
        d = demonstrations(*small)
        tiny = demonstrations(*((s, 1e-4 * a) for s, a in small))
        found, scaled_down = (action_divergence(x, neighbours(x.state, x.episode)) for x in (d, tiny))
        assert found == pytest.approx(scaled_down) and found.max() < 0.01

    def test_who_was_alone_covers_and_does_not_diverge(self) -> None:
        rng = np.random.default_rng(5)
        crowd = [reach(rng) for _ in range(20)]
        far = (crowd[0][0] + 40.0, -crowd[0][1])
        d = demonstrations(*crowd, far)
        near = neighbours(d.state, d.episode, limit=NEAR)
        assert alone(d, near)[-1] == 1.0 and np.isnan(action_divergence(d, near)[-1])
        assert np.isfinite(action_divergence(d, near)[:-1]).all()

    def test_transitions_of_a_deterministic_world_agree(self) -> None:
        rng = np.random.default_rng(0)
        line = np.linspace(0, 1, 30)[:, None] ** 2
        moves = np.diff(line, axis=0, append=line[-1:])
        quiet = demonstrations(*[(line, moves)] * 4)
        noisy = demonstrations(*[(line + 0.2 * rng.standard_normal(line.shape), moves) for _ in range(4)])
        assert transition_diversity(quiet) == pytest.approx([0.0] * 4, abs=1e-9)
        assert transition_diversity(noisy).min() > 0.3

    def test_coverage_by_hand(self) -> None:
        here, there = np.zeros((2, 1)), np.full((2, 1), 8.0)
        # Three cells of four frames are visited twice by the same or another episode.
        d = demonstrations((here, here), (here, here), (there, there))
        saco, novelty = coverage(d)
        assert saco == pytest.approx(2 / 6)
        assert novelty.tolist() == [0.0, 0.0, 1.0]

    def test_trajectory_quality_by_hand(self) -> None:
        two = (np.zeros((2, 1)), np.zeros((2, 1)))
        d = demonstrations(two, two, two, reward=np.array([0, 0, 0, 1.0, 0, 4.0]))
        assert trajectory_quality(d).tolist() == [0.0, 0.25, 1.0]
        below = demonstrations(two, two, reward=np.array([-3.0, 0, 0, 1.0]))
        assert trajectory_quality(below).tolist() == [0.0, 1.0]
        assert np.isnan(trajectory_quality(demonstrations(two))).all()

    def test_spectral_arc_length(self) -> None:
        t = np.linspace(0, 1, 101)
        stroke = 30 * t**2 * (1 - t) ** 2  # minimum jerk; about −1.41 in Balasubramanian et al. 2015
        assert spectral_arc_length(stroke, 100.0) == pytest.approx(-1.41, abs=0.03)
        assert spectral_arc_length(7 * stroke, 50.0) == pytest.approx(spectral_arc_length(stroke, 50.0))
        shaky = np.abs(stroke + 0.5 * np.sin(2 * np.pi * 8 * t))
        assert spectral_arc_length(shaky, 100.0) < -1.8
        assert np.isnan(spectral_arc_length(np.zeros(50), 20.0))

    def test_command_jerk_by_hand(self) -> None:
        assert command_jerk(np.array([[1.0], [-1.0], [1.0], [-1.0]])) == pytest.approx(4.0)  # |1 + 2 + 1| over 1
        assert command_jerk(np.linspace(0, 1, 9)[:, None]) == pytest.approx(0.0, abs=1e-9)
        # The gripper, last of several, may snap.
        assert command_jerk(np.array([[0.5, 1], [0.5, -1], [0.5, 1]])) == pytest.approx(0.0)

    def test_idle_counts_rests_but_not_moments(self) -> None:
        moving = np.arange(20.0)[:, None]
        resting = np.concatenate([moving[:10], np.full((10, 1), 9.0)])
        moment = np.concatenate([moving[:10], np.full((2, 1), 9.0), 9.0 + moving[1:9]])
        d = demonstrations(*[(s, np.zeros((20, 1))) for s in (moving, resting, moment)])
        assert idle(d).tolist() == [0.0, 0.55, 0.0]  # the tenth frame goes nowhere either

    def test_duplicates(self) -> None:
        rng = np.random.default_rng(1)
        first, second = reach(rng), reach(rng)
        trimmed = (first[0][:-1], first[1][:-1])
        tiny = (first[0].astype(np.float32), first[1].astype(np.float32))
        d = demonstrations(first, second, tiny, trimmed, (first[0] + 0.2, first[1]), (first[0][2:], first[1][2:]))
        assert duplicates(d).tolist() == [-1, -1, 0, 0, -1, 0]

    def test_near_limits(self) -> None:
        q = np.array([[0.0, 0.0], [0.99, 0.0], [0.0, -1.97], [0.0, 0.0]])
        d = demonstrations((q[:2], q[:2]), (q[2:], q[2:]), limits=np.array([[-1.0, -2.0], [1.0, 2.0]]))
        share, joint = near_limits(d)
        assert share.tolist() == [0.5, 0.5] and joint.tolist() == [0, 1]
        assert np.isnan(near_limits(replace(d, limits=None))[0]).all()

    def test_stale_frames(self) -> None:
        n = 24
        still = (np.zeros((n, 1)), np.zeros((n, 1)))
        t = np.arange(n) / HZ
        slow = np.floor(t * 15) / 15  # a 15 Hz camera: repeats are its habit
        frozen = np.where(np.arange(n) < 12, slow, slow[12])
        stamps = {"proprio": np.concatenate([t, t, t]), "images.front": np.concatenate([slow, slow, frozen])}
        share, source = stale(demonstrations(still, still, still, stamps=stamps))
        assert share[:2].tolist() == [0.0, 0.0] and 0.35 < share[2] <= 0.5
        assert source == ["", "", "images.front"]


class TestRanking:
    def test_good_before_noisy_before_failed_before_copies(self) -> None:
        rng = np.random.default_rng(0)
        kinds = ["good"] * 12 + ["noisy"] * 6 + ["failed"] * 4
        episodes = [reach(rng, 0.25 if kind == "noisy" else 0.0) for kind in kinds]
        episodes.append(episodes[0])
        d = demonstrations(*episodes, success=np.array([kind != "failed" for kind in kinds] + [True]))
        quality = assess(d)
        rank = {j.episode: j.rank for j in quality.episodes}
        assert max(rank[e] for e in range(12)) < min(rank[e] for e in range(12, 18))
        assert max(rank[e] for e in range(12, 18)) < min(rank[e] for e in range(18, 23))
        verdict = {j.episode: j for j in quality.episodes}
        assert all(verdict[e].verdict == "drop" for e in range(18, 23))
        assert "a copy of episode 0" in verdict[22].reasons and "failed" in verdict[18].reasons
        assert any("shaky" in reason for reason in verdict[13].reasons)
        weights = quality.weights()
        assert weights[18:] == [0.0] * 5 and min(weights[:12]) > max(weights[12:18]) > 0

    def test_copies_are_no_evidence_of_agreement(self) -> None:
        rng = np.random.default_rng(8)
        line = np.linspace(0, 1, 60)[:, None]
        noisy = [(line, line + 0.3 * rng.standard_normal(line.shape)) for _ in range(8)]
        alone_, copied = (
            {j.episode: j.measures["action_divergence"] for j in assess(demonstrations(*episodes)).episodes}
            for episodes in (noisy, [*noisy, noisy[0], noisy[0]])
        )
        assert copied[0] == pytest.approx(alone_[0], rel=0.25), "its copies agree with it, and say nothing"

    def test_rare_starts_rank_above_a_noisy_hand_and_are_kept(self) -> None:
        """Three episodes by the same policy from a start of their own, among many, and one by a shaking hand."""
        rng = np.random.default_rng(9)
        crowd = [reach(rng) for _ in range(20)]
        rare = [(s + np.array([6.0, 0, 0, 6.0, 0, 0]), a) for s, a in (reach(rng) for _ in range(3))]
        quality = assess(demonstrations(*crowd, *rare, reach(rng, 0.2), success=np.ones(24, bool)))
        found = {j.episode: j for j in quality.episodes}
        assert min(found[e].score for e in (20, 21, 22)) > found[23].score
        assert all(found[e].verdict == "keep" for e in (20, 21, 22))

    def test_no_score_is_so_low_that_a_sound_episode_goes(self) -> None:
        rng = np.random.default_rng(10)
        shaky = [reach(rng, 0.4) for _ in range(4)]
        quality = assess(demonstrations(*[reach(rng) for _ in range(12)], *shaky, success=np.ones(16, bool)))
        worst = quality.episodes[-1]
        assert worst.score < 60 and worst.verdict == "look" and worst.weight > 0

    def test_noise_ranks_low_without_outcomes(self) -> None:
        rng = np.random.default_rng(3)
        quality = assess(demonstrations(*[reach(rng, 0.2 if e % 2 else 0.0) for e in range(16)]))
        assert {j.episode % 2 for j in quality.episodes[:8]} == {0}
        assert quality.success is None and quality.tq is None

    def test_low_return_stands_in_for_failure(self) -> None:
        rng = np.random.default_rng(4)
        episodes = [reach(rng) for _ in range(6)]
        reward = np.concatenate([(np.arange(len(s)) == len(s) - 1) * float(e < 5) for e, (s, _) in enumerate(episodes)])
        quality = assess(demonstrations(*episodes, reward=reward))
        assert quality.episodes[-1].episode == 5 and quality.episodes[-1].verdict == "drop"
        assert quality.episodes[-1].reasons[0] == "low return"

    def test_a_uniform_set_is_kept_whole(self) -> None:
        rng = np.random.default_rng(5)
        quality = assess(demonstrations(*[reach(rng) for _ in range(20)], success=np.ones(20, bool)))
        assert len(quality.of_kind("drop")) == 0 and len(quality.of_kind("keep")) >= 17

    @pytest.mark.parametrize("where", ["state", "action"])
    def test_an_episode_with_a_wild_frame_is_named_and_not_kept(self, where: str) -> None:
        rng = np.random.default_rng(5)
        d = demonstrations(*[reach(rng) for _ in range(6)], success=np.ones(6, bool))
        getattr(d, where)[d.starts[3] + 4, 1] = -9999.0
        quality = assess(d)
        worst = quality.episodes[-1]
        assert (worst.episode, worst.verdict) == (3, "drop") and worst.score <= 40
        what = "an observed value" if where == "state" else "an action"
        assert worst.reasons[0] == f"{what} is -9999 at frame 4, far beyond all others"
        assert summary(quality).startswith("Drop 1 episode of 6, failed, copies or with wild frames: 3.")
        assert quality.weights()[3] == 0 and len(quality.of_kind("drop")) == 1

    @pytest.mark.parametrize("count", [1, 2, 3])
    def test_small_sets(self, count: int) -> None:
        rng = np.random.default_rng(6)
        quality = assess(demonstrations(*[reach(rng, length=5) for _ in range(count)], success=np.ones(count, bool)))
        assert [j.rank for j in quality.episodes] == list(range(1, count + 1))
        assert all(np.isfinite(j.score) for j in quality.episodes)

    def test_sets_in_which_nothing_moves_or_lasts(self) -> None:
        one = (np.zeros((1, 2)), np.zeros((1, 1)))
        quality = assess(demonstrations(one, one, one, success=np.zeros(3, bool), reward=np.zeros(3)))
        assert len(quality.of_kind("drop")) == 3
        with pytest.raises(BadInput, match="only episodes to drop"):
            quality.weights()


def interface() -> Interface:
    from robots import ROBOTS
    from robots.spec import proprio_spec

    return Interface(
        {"proprio": proprio_spec(ROBOTS["panda"])}, ArraySpec((2,)), HZ, embodiment="panda", action_kind="tcp_delta"
    )


@pytest.fixture
def stored(tmp_path: Path) -> Callable[..., Dataset]:
    def store(**q: float) -> Dataset:
        spec = interface()
        home = np.zeros(17, np.float32)
        home[:7] = [0, -0.6, 0, -2.2, 0, 1.6, 0.8]
        with EpisodeWriter(tmp_path / "set", spec) as writer:
            for e in range(3):
                proprio = np.repeat(home[None], 10, 0)
                proprio[:, 8] = np.linspace(0, 0.1 + 0.05 * e, 10)
                proprio[:, 0] = np.linspace(0, 0.5, 10) if e else np.linspace(0, q.get("far", 0.5), 10)
                action = np.stack([np.linspace(0, 0.1 * (e + 1), 10), np.ones(10)], 1).astype(np.float32)
                writer.write(Episode({"proprio": proprio}, action, np.zeros(10, np.float32), True, True, False, "t"))
        return Dataset.open(tmp_path / "set")

    return store


class TestOfDataset:
    def test_joints_limits_and_path_are_found_by_name(self, stored: Callable[..., Dataset]) -> None:
        dataset = stored(far=2.88)
        d = Demonstrations.of(dataset)
        assert d.body.shape == (30, 8) and d.path.shape == (30, 3) and d.limits is not None
        quality = assess(d, interface().observation["proprio"].names[:7])
        reasons = {j.episode: j.reasons for j in quality.episodes}
        assert any(reason.startswith("panda_joint1 at the end") for reason in reasons[0])
        assert not any("at the end" in reason for reason in (*reasons[1], *reasons[2]))

    def test_a_set_without_vectors_is_refused(self, stored: Callable[..., Dataset]) -> None:
        with pytest.raises(BadInput, match="no observed vector"):
            Demonstrations.of(replace(stored(), observation={}))
