"""Episodes that begin along demonstrations, on the side of learning: their schedule, and what is counted of them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from robolearn.core import BadInput
from robolearn.rl.along import AlongConfig, Starts
from robolearn.rl.buffer import collect
from robolearn.rollout import Decision, Engine, Episodes


class AlternatingWorlds:
    """N worlds whose episodes last one step; every second one began along a demonstration, and is solved."""

    max_episode_steps, steps_together, reports_success, task = 1, False, True, "two kinds"

    def __init__(self, n: int) -> None:
        self.num_envs, self.number = n, np.zeros(n, np.int64)
        self.ended_along = np.zeros(n, np.bool_)
        self.asked: list[tuple[float, float, float]] = []

    def begin_along(self, *window: float) -> None:
        self.asked.append(window)  # type: ignore[arg-type]

    def _see(self) -> dict[str, np.ndarray]:
        return {"proprio": self.number[:, None].astype(np.float32)}

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[dict, dict]:
        self.number[:] = 0
        return self._see(), {"success": np.zeros(self.num_envs, np.bool_)}

    def step(self, actions: np.ndarray, active: np.ndarray) -> tuple:
        final = self._see()
        self.ended_along = np.where(active, self.number % 2 == 1, self.ended_along)
        solved = active & self.ended_along
        self.number += active
        infos = {"success": solved, "final_obs": final, "_final_obs": active}
        return self._see(), 2.0 * solved.astype(np.float32), solved, active & ~solved, infos


def test_share_and_window_go_from_near_the_end_to_the_task_s_own_starts() -> None:
    config = AlongConfig(along_share=0.8, along_until=0.5)
    assert config.at(0.0) == pytest.approx((0.8, 0.9, 0.9))
    assert config.at(0.125) == pytest.approx((0.6, 0.675, 0.9))  # a quarter of the way
    assert config.at(0.5) == config.at(1.0) == pytest.approx((0.0, 0.0, 0.9))
    env = AlternatingWorlds(1)
    config.build(env).schedule(0.25)
    Starts().schedule(0.25)
    assert env.asked == [pytest.approx((0.4, 0.45, 0.9))]


@pytest.mark.parametrize("name", ["along_share", "along_until"])
def test_a_share_outside_0_to_1_is_refused(name: str) -> None:
    for value in (0.0, 1.1, float("nan")):
        with pytest.raises(BadInput, match=f"--{name.replace('_', '-')}: got {value}"):
            AlongConfig(**{name: value})


@pytest.mark.parametrize(("config", "counted"), [(AlongConfig(), (6, 0, 4)), (None, (10, 4, 0))])
def test_what_began_along_a_demonstration_counts_neither_as_success_nor_as_failure(
    config: AlongConfig | None, counted: tuple[int, int, int]
) -> None:
    env: Any = AlternatingWorlds(2)
    engine = Engine(env)
    engine.reset(0)
    act = lambda seen: Decision(np.zeros((2, 1, 1), np.float32), {})  # noqa: E731
    features = lambda seen: {"proprio": torch.from_numpy(seen["proprio"].copy())}  # noqa: E731
    batch = collect(
        engine,
        act,
        Episodes(np.full(2, 5)),
        features,
        device=torch.device("cpu"),
        starts=config.build(env) if config else None,
    )
    assert (batch.episodes, batch.success, len(batch.altered)) == counted
    assert len(batch) == 10 and int(batch.solved.sum()) == 4, "all of them are learned from"
    if config is not None:
        assert not batch.returns.any() and (batch.altered == 2.0).all()


def test_episodes_of_a_replay_are_split_by_the_worlds_that_ended() -> None:
    env: Any = AlternatingWorlds(3)
    engine = Engine(env)
    engine.reset(0)
    env.number[1] = 1  # the second world's episode began along a demonstration
    agent: Any = type("Agent", (), {"observes_every_step": False, "begin": lambda *_: None,
                                    "decide": lambda *_: Decision(np.zeros((3, 1, 1), np.float32))})()  # fmt: skip
    turn = next(iter(engine.turns(agent, Episodes(np.array([0, 1, 1])))))
    assert AlongConfig().build(env).split(["first", "second"], turn) == (["second"], ["first"])
    assert Starts().split(["first", "second"], turn) == (["first", "second"], [])
