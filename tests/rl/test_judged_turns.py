"""Critics that say when the other policy's turn is, in worlds that nobody resets."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from robolearn.core import RewardWithheld, Score, Window
from robolearn.rl.audit import AuditConfig, Audited
from robolearn.rl.off_policy_settings import RlpdConfig
from robolearn.rl.two_way_runner import JudgedTurns, TwoWayRunner
from sim.registry import WorldConfig

Make = Callable[..., Any]
FAR, NEAR, LIMIT = 0.5, 0.25, 8


class Side:
    """Done where the point is beyond 0.25 on its side, sooner than the world's 0.5; its progress is how far it is."""

    frame_by_frame, reads = True, ("proprio",)

    def __init__(self, way: float, words: str, silent: bool = False) -> None:
        self.way, self.words, self.silent = way, words, silent
        self.lengths: list[int] = []

    def score(self, windows: list[Window], prompts: list[str]) -> list[Score]:
        assert set(prompts) <= {self.words}
        if self.silent:
            raise RewardWithheld("not now")
        self.lengths += [len(window.observation["proprio"]) for window in windows]
        return [self.score_one(window.observation["proprio"][1:, 0] * self.way) for window in windows]

    def score_one(self, x: np.ndarray) -> Score:
        progress = np.clip(x, 0, 1).astype(np.float32)
        return Score(progress, progress, x > NEAR, np.ones(len(x), np.float32))


def shuttle(point: Make, worlds: int) -> Any:
    """A point that has to come beyond 0.5, and in turn beyond −0.5, where the clock or `hand_over` ends a turn."""
    base: Any = type(point(1, chunks=False))

    class Shuttle(base):
        def __init__(self) -> None:
            super().__init__(worlds, limit=LIMIT)
            self.prompts, self.helped, self.back = ("go right", "go left"), 0, np.zeros(worlds, bool)
            self.judged, self.prompt = False, "go right"

        def judge_outside(self) -> None:
            self.judged = True

        def reset(self, **given: Any) -> tuple[dict, dict]:
            self.back = np.zeros(worlds, bool)
            return super().reset(**given)

        def step(self, actions: np.ndarray, active: np.ndarray | None = None) -> tuple:
            assert self.judged
            self.position = np.clip(self.position + 0.3 * actions[:, 0], -1.0, 1.0)
            self.elapsed += 1
            success = np.where(self.back, self.position < -FAR, self.position > FAR)
            truncated = self.elapsed >= self.max_episode_steps
            final = {key: value.copy() for key, value in self._see().items()}
            self.back = self.back ^ truncated
            self.elapsed[truncated] = 0
            infos = {"final_obs": final, "_final_obs": truncated, "success": success}
            return self._see(), success.astype(np.float32), np.zeros(worlds, bool), truncated, infos

        def hand_over(self, ids: np.ndarray) -> dict:
            self.back = self.back.copy()
            self.back[ids] ^= True
            self.elapsed[ids] = 0
            return self._see()

        def snapshot(self) -> dict[str, np.ndarray]:
            return super().snapshot() | {"back": self.back.copy()}

        def restore(self, snapshot: dict[str, np.ndarray]) -> dict:
            self.back = snapshot["back"].copy()
            return super().restore(snapshot)

    return Shuttle()


def judged(point: Make, every: int = 1, worlds: int = 1, **how: Any) -> tuple[JudgedTurns, Any, tuple[Side, Side]]:
    env, sides = shuttle(point, worlds), (Side(1, "go right", **how), Side(-1, "go left", **how))
    made: Any = JudgedTurns(env, sides, every)
    made.reset(seed=0)
    env.position[:] = 0.0
    return made, env, sides


def play(env: JudgedTurns, moves: list[float]) -> list[tuple[float, bool, bool, bool]]:
    """(where an episode's last observation is, terminated, truncated, whose turn is next) after each step."""
    found = []
    for move in moves:
        _, _, terminated, truncated, infos = env.step(np.full((1, 1), move, np.float32))
        assert bool(infos["_final_obs"][0]) == bool(terminated[0] | truncated[0])
        x = float(infos["final_obs"]["proprio"][0, 0])
        found.append((round(x, 2), bool(terminated[0]), bool(truncated[0]), bool(env.back[0])))
    return found


def test_a_turn_is_over_where_its_own_critic_says_so(point: Make) -> None:
    env, _, sides = judged(point)
    assert play(env, [0.5, 0.5, -1.0, -0.5, -0.5]) == [
        (0.15, False, False, False), (0.3, True, False, True),
        (0.0, False, False, True), (-0.15, False, False, True), (-0.3, True, False, False),
    ]  # fmt: skip
    assert sides[0].lengths == [2, 2] and sides[1].lengths == [2, 2, 2], "a critic is asked in its own turns alone"


def test_the_world_s_success_ends_nothing(point: Make) -> None:
    env, _, _ = judged(point, silent=True)
    ends = play(env, [1.0] * LIMIT)
    assert [end[1:3] for end in ends] == [(False, False)] * (LIMIT - 1) + [(False, True)], "but the clock does"
    assert ends[-1][0] == 1.0 and ends[-1][3]


def test_verdicts_come_every_so_many_steps_of_an_episode(point: Make) -> None:
    env, _, sides = judged(point, every=3)
    assert [end[1] for end in play(env, [1.0, 0.0, 0.0, -1.0, -1.0, 0.0])] == [False, False, True] * 2
    assert [len(side.lengths) for side in sides] == [1, 1]
    sides[0].frame_by_frame = False
    play(env, [0.0] * 6)
    assert sides[0].lengths[1:] == [2, 3], "another model sees the frames of all verdicts so far"


def test_a_restored_world_goes_on_as_it_would_have(point: Make) -> None:
    moves = [1.0, -0.4, 0.0, 0.2, -1.0, 0.5, -1.0, -1.0]
    for cut in range(1, 8):
        whole, _, _ = judged(point, every=2)
        expected = play(whole, moves)
        first, _, _ = judged(point, every=2)
        play(first, moves[:cut])
        second, _, _ = judged(point, every=2)
        second.restore({key: np.array(value) for key, value in first.snapshot().items()})  # type: ignore[union-attr]
        assert play(second, moves[cut:]) == expected[cut:]
        assert [f["proprio"].tolist() for f in second._seen[0]] == [f["proprio"].tolist() for f in whole._seen[0]]


@pytest.mark.long
def test_both_policies_learn_from_their_own_critic(make_policy: Make, point: Make) -> None:
    world = shuttle(point, 4)
    policies = [make_policy(world.interface, seed, horizon=2, execute=2, gain=20.0) for seed in (0, 1)]
    sides = Side(1, "go right"), Side(-1, "go left")
    config = RlpdConfig(critics=3, subset=2, width=16, depth=1, batch=16, warmup=20, utd=0.5)
    runner = TwoWayRunner(policies[0], world, config, 8000, 0, [], sides[0], "", policies[1], [], sides[1], sides)
    kept: dict[str, list[Any]] = {"there": [], "back": []}
    for name, experience in (("there", runner.experience), ("back", runner.backward.experience)):
        add, own = experience.add, kept[name]

        def adds(episode: Any, add: Any = add, own: list[Any] = own) -> Any:
            own.append((episode, scored := add(episode)))
            return scored

        experience.add = adds  # type: ignore[method-assign]
    both = Audited(Audited(runner, AuditConfig("warn")), AuditConfig("warn"), "back_")
    rows = [both.iterate(i) for i in range(5)]
    for name, way in (("there", 1.0), ("back", -1.0)):
        ended = [(seen, scored) for seen, scored in kept[name] if seen.terminated]
        assert len(ended) > 3
        for seen, scored in ended:
            assert way * seen.observation["proprio"][-1, 0] > NEAR and scored.success
            assert len(scored) == len(seen), "scored as it was judged"
            solved = (way * seen.observation["proprio"][1:, 0]).max() > FAR
            assert seen.success == solved, "the world's, which is only shown"
    backs = sum(row.get("back_called_solved", 0) + row.get("back_called_failed", 0) for row in rows)
    assert backs == sum(scored.success for _, scored in kept["back"]) > 0
    assert any("back_audit_precision" in row for row in rows) and any("audit_precision" in row for row in rows)
    assert {"audit", "back_audit"} <= both.state()[1].keys()


def test_embedded_worlds_hand_over_and_do_not_end_by_themselves() -> None:
    env: Any = WorldConfig("lift", two_way=True, threads=1).build(2)
    env.reset(seed=0)
    solved = env.world_task.success
    object.__setattr__(env.world_task, "success", lambda state: ~(solved(state) & False))
    down = np.zeros((2, env.interface.action.size), np.float32)
    env.judge_outside()
    _, _, terminated, _, infos = env.step(down)
    assert infos["success"].all() and not terminated.any() and not env.back.any()
    before = infos["final_obs"]["proprio"].copy()
    seen = env.hand_over(np.array([1]))
    assert env.back.tolist() == [False, True] and env._unsolved.tolist() == [0, 0] and env.helped == 0
    np.testing.assert_array_equal(infos["final_obs"]["proprio"], before)
    assert seen["proprio"].shape == before.shape and not env._called.any()
    env.max_episode_steps = 2
    env.step(down)  # the clock of world 0, which nobody has called solved
    assert env.back.tolist() == [True, True] and env._unsolved.tolist() == [1, 0]
    env.close()
