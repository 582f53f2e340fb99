"""Two policies that take turns: which of them learns from what, exact resumption, and that both do learn."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from robolearn.core import BadInput
from robolearn.data.replay import PlayedEpisode
from robolearn.rl.off_policy_settings import ProposalsConfig, RlpdConfig
from robolearn.rl.settings import BACKWARD
from robolearn.rl.two_way_runner import TwoWayRunner

Make = Callable[..., Any]
FAR, REACH, LIMIT = 0.5, 0.3, 8
SMALL: dict[str, Any] = {"critics": 3, "subset": 2, "width": 16, "depth": 1, "batch": 16, "warmup": 20}


def shuttle(point: Make, worlds: int) -> Any:
    """Worlds in which a point has to come beyond 0.5, and in turn beyond −0.5; nobody resets it."""
    base: Any = type(point(1, chunks=False))

    class Shuttle(base):
        def __init__(self) -> None:
            super().__init__(worlds, limit=LIMIT)
            self.prompts, self.helped, self.back = ("go right", "go left"), 0, np.zeros(worlds, bool)

        def reset(self, **given: Any) -> tuple[dict, dict]:
            self.back[:] = False
            return super().reset(**given)

        def step(self, actions: np.ndarray, active: np.ndarray | None = None) -> tuple:
            assert active is None or active.all()
            self.position += REACH * actions[:, 0]
            self.elapsed += 1
            success = np.where(self.back, self.position < -FAR, self.position > FAR)
            truncated = ~success & (self.elapsed >= self.max_episode_steps)
            ended = success | truncated
            final = {key: value.copy() for key, value in self._see().items()}
            self.back ^= ended  # in place: whoever keeps it without a copy sees the next turn
            self.elapsed[ended] = 0
            self.position = np.clip(self.position, -1.0, 1.0)
            infos = {"final_obs": final, "_final_obs": ended, "success": success}
            return self._see(), success.astype(np.float32), success.copy(), truncated, infos

        def snapshot(self) -> dict[str, np.ndarray]:
            return super().snapshot() | {"back": self.back.copy()}

        def restore(self, snapshot: dict[str, np.ndarray]) -> dict:
            self.back[:] = snapshot["back"]
            return super().restore(snapshot)

    return Shuttle()


class Copied:
    """The world, whose `back` is a copy, as the contract has it."""

    def __init__(self, env: Any) -> None:
        self._env = env

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._env, name)
        return found.copy() if name == "back" else found


def begin(make_policy: Make, point: Make, config: Any, shown: bool = False) -> TwoWayRunner:
    """With the demonstrations of both, if they are to be `shown`."""
    world: Any = Copied(shuttle(point, 4))
    policies = [make_policy(world.interface, seed, horizon=2, execute=2, gain=20.0) for seed in (0, 1)]
    there, back = ([demonstration(way)] if shown else [] for way in (1.0, -1.0))
    return TwoWayRunner(policies[0], world, config, 8000, 0, there, None, "", policies[1], back)


def demonstration(way: float) -> PlayedEpisode:
    """From one end beyond the middle of the other side."""
    x = way * np.clip(np.arange(-1.0, 0.7, REACH), -1, 1)
    seen = np.stack([x, np.arange(len(x)) / LIMIT], 1).astype(np.float32)
    actions, reward = np.full((len(x) - 1, 1), way, np.float32), np.zeros(len(x) - 1, np.float32)
    reward[-1] = 1.0
    return PlayedEpisode({"proprio": seen}, actions, reward, np.ones(len(actions), bool), True, True)


def run(runner: TwoWayRunner, first: int, last: int) -> list[dict[str, float]]:
    rows = [runner.iterate(i) for i in range(first, last)]
    return [{key: value for key, value in row.items() if not key.startswith("wall")} for row in rows]


@pytest.mark.long
def test_each_learns_from_its_own_episodes(make_policy: Make, point: Make) -> None:
    runner = begin(make_policy, point, RlpdConfig(**SMALL, utd=0.5))
    kept: dict[str, list[PlayedEpisode]] = {"there": [], "back": []}
    for name, experience in (("there", runner.experience), ("back", runner.backward.experience)):
        add, own = experience.add, kept[name]
        experience.add = lambda episode, add=add, own=own: own.append(episode) or add(episode)  # type: ignore[method-assign]
    rows = run(runner, 0, 6)
    solved = {name: [episode for episode in episodes if episode.success] for name, episodes in kept.items()}
    assert min(map(len, kept.values())) > 20 and min(map(len, solved.values())) > 3
    assert all(episode.observation["proprio"][-1, 0] > FAR for episode in solved["there"])
    assert all(episode.observation["proprio"][-1, 0] < -FAR for episode in solved["back"])
    for episode in (*kept["there"], *kept["back"]):
        assert episode.success == episode.terminated and (episode.terminated or len(episode) == LIMIT)
    assert abs(len(kept["there"]) - len(kept["back"])) <= 4, "they take turns, whatever comes of it"
    for learner in (runner, runner.backward):
        steps = learner.experience.env_steps
        assert learner.algorithm.updates == int(0.5 * max(steps - SMALL["warmup"], 0)) > 0
    assert sum(row["back_episodes"] for row in rows) == len(kept["back"])
    assert sum(row["episodes"] for row in rows) == len(kept["there"])
    assert rows[-1]["helped"] == 0 and rows[-1]["back_updates"] == runner.backward.algorithm.updates


@pytest.mark.long
def test_a_resumed_run_goes_on_bit_for_bit(make_policy: Make, point: Make, kit: Any) -> None:
    config = ProposalsConfig(**SMALL, imitate_own=True, trust_after=5)
    whole, again = (begin(make_policy, point, config) for _ in range(2))
    kit.assert_goes_on(whole, again, 3, 6)


def test_both_are_exported(make_policy: Make, point: Make, tmp_path: Path) -> None:
    runner = begin(make_policy, point, RlpdConfig(**SMALL))
    run(runner, 0, 2)
    runner.export(tmp_path / "policy")
    for folder, learner in ((tmp_path / "policy", runner), (tmp_path / "policy" / BACKWARD, runner.backward)):
        from policies.storage.loading import open_policy

        stored, live = open_policy(folder), learner.algorithm.policy
        for key, value in live.state_dict().items():
            assert (stored.state_dict()[key] == value).all(), (folder, key)  # type: ignore[attr-defined]


@pytest.mark.long
def test_both_learn_what_they_were_shown(make_policy: Make, point: Make) -> None:
    """Each has one demonstration, of its own way: the other one's would lead it to the wrong side."""
    config = ProposalsConfig(**SMALL, imitate_own=True, trust_after=200, imitate_lr=3e-3, imitate_average=0.98)
    rows = run(begin(make_policy, point, config, shown=True), 0, 30)
    for prefix in ("", "back_"):
        last = [(row[f"{prefix}success"], row[f"{prefix}episodes"]) for row in rows[-10:] if row[f"{prefix}episodes"]]
        assert sum(rate * n for rate, n in last) >= 0.8 * sum(n for _, n in last) > 10, prefix


def test_two_that_execute_other_chunks_are_refused(make_policy: Make, point: Make) -> None:
    world = shuttle(point, 4)
    policy = make_policy(world.interface, horizon=2, execute=2)
    longer = make_policy(world.interface, horizon=4, execute=4)
    with pytest.raises(BadInput, match="--back-policy: steps that are executed of a chunk: got 4, expected 2"):
        TwoWayRunner(policy, world, RlpdConfig(**SMALL), 2000, 0, (), None, "", longer, ())  # type: ignore[arg-type]
