"""The judge of `make test-rehearsal`: one stop that a policy earned is a failed episode, any other one a defect."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

sys.path.insert(0, str(Path(__file__).parents[1] / "programs"))

import rehearse_arms

from hardware.ros2.messages import SafetyReport
from hardware.safety.states import SafetyState
from robots.stations import load_contract

NEAR_ITSELF = "self-collision: link5 would come within 0.0194 m of link1, allowed 0.020 m"
SINGULAR = "singularity: the arm would come near a singularity: condition number 61.1, allowed 60.0"


class Deployment:
    """One that has ended: so many episodes solved, and how."""

    def __init__(self, solved: list[bool], reason: str = "", violations: int = 0, code: int | None = None) -> None:
        self.reason, self.code = reason, int(bool(reason)) if code is None else code
        ended = f"episode {len(solved)}: the safety filter stopped the arm: {reason}" if reason else None
        self.result = {
            "succeeded": solved, "ended": ended, "stopped": bool(reason), "violations": violations,
            "monitor": {"commands": 1000 * len(solved)},
        }  # fmt: skip

    def end(self) -> tuple[int, str, str]:
        return self.code, json.dumps(self.result), ""

    def log(self) -> str:
        return ""


Check = Callable[..., int]


@pytest.fixture
def check(monkeypatch: pytest.MonkeyPatch) -> Check:
    """Judge these deployments, one after the other; `latches`: the filter reports that it is latched."""

    def judge(*deployments: Deployment, latches: bool = True, asked: list[int] | None = None) -> int:
        left = list(deployments)
        reports: list[SafetyReport] = []

        @contextmanager
        def reported(contract: Any) -> Iterator[list[SafetyReport]]:
            yield reports

        def start(logs: Path, episodes: int) -> Any:
            one = left.pop(0)
            (asked if asked is not None else []).append(episodes)
            reports.append(SafetyReport(SafetyState.LATCHED if latches else SafetyState.ARMED, one.reason, {}))
            return one

        monkeypatch.setattr(rehearse_arms, "reported", reported)
        commands = rehearse_arms.check_episodes(start, load_contract("fr3"), Path("logs"), 0.5)
        assert not left
        return commands

    return judge


def test_four_episodes_of_which_two_are_solved_will_do(check: Check) -> None:
    assert check(Deployment([True, False, True, False])) == 4000
    with pytest.raises(AssertionError):
        check(Deployment([True, False, False, False]))


@pytest.mark.parametrize("reason", [NEAR_ITSELF, SINGULAR])
def test_one_stop_that_the_policy_earned_is_an_episode_that_failed(check: Check, reason: str) -> None:
    asked: list[int] = []
    assert check(Deployment([True, False], reason), Deployment([True, True]), asked=asked) == 4000
    assert asked == [4, 2]
    with pytest.raises(AssertionError):
        check(Deployment([False, False], reason), Deployment([True, False]))


def test_behind_a_stop_the_arm_is_armed_again_whatever_is_left(check: Check) -> None:
    asked: list[int] = []
    check(Deployment([True, True, True, False], SINGULAR), Deployment([True]), asked=asked)
    assert asked == [4, 1]
    with pytest.raises(AssertionError):
        check(Deployment([True, False, False, False], SINGULAR), Deployment([True]))


@pytest.mark.parametrize(
    "deployments",
    [
        (Deployment([True, False], SINGULAR), Deployment([True, False], NEAR_ITSELF)),
        (Deployment([True, False], "stop: targets are late (deadline missed)"), Deployment([True, True])),
        (Deployment([True, False], "following: set-point: joint 1 is 0.2 rad from the measured one, allowed 0.1 rad"),),
        (Deployment([True, False], SINGULAR, violations=1), Deployment([True, True])),
        (Deployment([True, True], SINGULAR), Deployment([True, True], violations=1)),
        (Deployment([True, True, True, True], code=2),),
    ],
)
def test_a_second_stop_another_one_and_a_broken_limit_are_defects(
    check: Check, deployments: tuple[Deployment, ...]
) -> None:
    with pytest.raises(AssertionError):
        check(*deployments)


def test_a_stop_that_does_not_latch_is_a_defect(check: Check) -> None:
    with pytest.raises(AssertionError):
        check(Deployment([True, False], SINGULAR), Deployment([True, True]), latches=False)


def test_the_judge_of_a_deployments_nodes_can_be_started() -> None:
    """`make test-maker ARGS="--live 6"` is run by hand, and a name that it imports may move."""
    import maker_live

    assert set(maker_live.DEPLOYED) > {"kill safety", "kill streamer", "kill policy", "kill sim_arm"}
