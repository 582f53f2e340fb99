"""Failures on purpose: none of them is a success, and each is of its own kind."""

from __future__ import annotations

import numpy as np
import pytest

from robolearn.core import BadInput
from robolearn.data.lerobot.features import FAILURES
from sim.experts import QUALITIES, Quality, make_expert
from sim.experts.failures import KINDS
from sim.registry import make_env

TASKS = ("lift", "pick_place", "peg_insert", "peg_insert_tight")


def test_every_kind_has_a_number_and_a_quality() -> None:
    assert set(KINDS) <= set(FAILURES) and set(KINDS) <= set(QUALITIES)
    assert QUALITIES["failures"].failures == KINDS


@pytest.mark.long
@pytest.mark.parametrize("task", TASKS)
def test_what_shall_fail_fails(task: str) -> None:
    env = make_env(task, 24, threads=1)
    expert = make_expert(task, env.interface, 24, "failures", 0)
    observation, _ = env.reset(seed=3)
    active = np.ones(24, bool)
    expert.reset(active)
    kinds = {expert.failure(w) for w in range(24)}
    assert len(kinds) == (4 if task.startswith("peg") else 6)
    while active.any():
        observation, _, terminated, truncated, infos = env.step_chunk(expert.command(observation)[:, None], active)
        assert not infos["success"].any(), [expert.failure(int(w)) for w in np.flatnonzero(infos["success"])]
        active &= ~(terminated | truncated)


def test_a_kind_that_does_not_exist_is_refused() -> None:
    env = make_env("lift", 1, threads=1)
    with pytest.raises(BadInput, match="got melted; available: missed, dropped"):
        make_expert("lift", env.interface, 1, Quality(failures=("melted",)), 0)
