"""The curriculum: free at first, back to what failed, the same after a kill."""

from __future__ import annotations

import numpy as np

from robolearn.data.replay import End, Record, ReplayStep
from robolearn.hil.curriculum import Curriculum
from robolearn.hil.settings import NO_CURRICULUM, CurriculumConfig

SEEN = {"proprio": np.zeros(2, np.float32)}
ALWAYS = CurriculumConfig(free=0.0, free_steps=0, revisit=1.0)


def episode(number: int, steps: int = 4, *, helped: int = 0, success: bool = True) -> list[Record]:
    """The first `helped` steps are an operator's."""
    played: list[Record] = [ReplayStep(number, t, SEEN, np.zeros(1, np.float32), 0.0, t < helped) for t in range(steps)]
    return [*played, End(number, steps, SEEN, success, not success, success)]


def play(schedule: Curriculum, number: int, **how) -> tuple[int, bool]:
    begun = schedule.begin(number)
    for record in episode(number, **how):
        schedule.take(record)
    return begun


def test_what_failed_or_was_helped_begins_once_more() -> None:
    schedule = Curriculum(ALWAYS, 0, "a")
    assert play(schedule, 0, success=False) == (0, False)
    assert play(schedule, 1, helped=2) == (0, False)  # the start of episode 0, and again it is not solved unaided
    assert play(schedule, 2) == (0, False)
    assert play(schedule, 3) == (3, False)  # nothing is left
    assert play(schedule, 4, helped=4) == (4, False)  # the policy had no part in it
    assert play(schedule, 5)[0] == 5


def test_an_operator_steers_freely_at_first() -> None:
    share = {}
    for steps in (0, 50, 100):
        freely = []
        for seed in range(400):
            schedule = Curriculum(CurriculumConfig(free=0.8, free_steps=100, revisit=0.0), seed, "a")
            for record in episode(0, steps=steps) if steps else []:
                schedule.take(record)
            freely.append(schedule.begin(1)[1])
        share[steps] = np.mean(freely)
    np.testing.assert_allclose([share[0], share[50], share[100]], [0.8, 0.4, 0.0], atol=0.08)


def test_without_help_every_episode_is_its_own() -> None:
    schedule = Curriculum(NO_CURRICULUM, 0, "a")
    assert [play(schedule, number, success=False) for number in range(6)] == [(number, False) for number in range(6)]


def test_after_a_kill_it_goes_on_as_it_would_have() -> None:
    config, rng = CurriculumConfig(free=0.5, free_steps=60, revisit=0.5), np.random.default_rng(0)
    how = [{"success": bool(rng.random() < 0.5), "helped": int(rng.integers(3))} for _ in range(30)]
    unbroken, records = Curriculum(config, 3, "a"), []
    begun = []
    for number, kinds in enumerate(how):
        begun.append(play(unbroken, number, **kinds))
        records += episode(number, **kinds)
    for stop in (1, 7, 20):
        again = Curriculum(config, 3, "a")
        again.replay(record for record in records if record.episode < stop)
        assert [play(again, n, **how[n]) for n in range(stop, 30)] == begun[stop:]
    assert len({start for start, _ in begun}) < 30 and any(freely for _, freely in begun)
