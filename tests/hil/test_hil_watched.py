"""The share of help, counted by hand in a world whose episodes are known."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from robolearn.core import ArraySpec, Interface
from robolearn.hil.evaluation import HelpedAgent, measure_help
from sim.experts import make_expert, make_operator
from sim.registry import make_env


class Counting:
    """A policy whose chunks hold the number of their call and their step."""

    execute_steps = 4
    interface = Interface({"x": ArraySpec((1,))}, ArraySpec((2,)), 20.0)
    calls = 0

    def begin(self, worlds: NDArray[np.bool_]) -> None:
        """There is no history."""

    def act(self, observation: Any) -> NDArray[np.float32]:
        self.calls += 1
        return np.array([[[self.calls / 10, step / 10] for step in range(4)]] * 2, np.float32)


class Steers:
    """Steers world 1 at the steps 1 and 2."""

    step = -1

    def begin(self, worlds: NDArray[np.bool_]) -> None:
        """Nothing."""

    def steer(self) -> None:
        """Nothing."""

    def command(self, observation: Any) -> tuple[NDArray[np.bool_], NDArray[np.float32]]:
        self.step += 1
        return np.array([False, self.step in (1, 2)]), np.full((2, 2), -3.0, np.float32)


def test_help_voids_the_rest_of_a_chunk_in_its_world_alone() -> None:
    agent: Any = HelpedAgent(Counting(), Steers(), 2)  # type: ignore[arg-type]
    agent.begin(np.ones(2, bool))
    decided = [agent.decide({}, np.ones(2, bool)) for _ in range(5)]
    actions = np.round([d.chunk[:, 0] * 10 for d in decided]).astype(int)
    assert actions[:, 0].tolist() == [[1, 0], [1, 1], [1, 2], [1, 3], [3, 0]]
    assert actions[:, 1].tolist() == [[1, 0], [-10, -10], [-10, -10], [2, 0], [2, 1]]
    assert [d.aux["intervention"].tolist() for d in decided[:3]] == [[False, False], [False, True], [False, True]]


@pytest.mark.long
@pytest.mark.parametrize("good", [True, False])
def test_who_does_well_needs_no_help(good: bool) -> None:
    env = make_env("lift", 12, threads=1)
    expert = make_expert("lift", env.interface, 12, "expert", 0)

    class Acts:
        execute_steps, interface = 1, env.interface

        def reset(self, seed: int) -> None:
            """Nothing."""

        def begin(self, worlds: NDArray[np.bool_]) -> None:
            expert.reset(worlds)

        def act(self, observation: Any) -> NDArray[np.float32]:
            return (expert.command(observation) if good else np.zeros((12, 7), np.float32))[:, None]

    found = measure_help(env, Acts(), make_operator("lift", env.interface, 12, 0), 5)  # type: ignore[arg-type]
    env.close()
    assert (found["intervention_rate"] < 0.05) == good
    assert (found["unaided"] > 0.8) == good
