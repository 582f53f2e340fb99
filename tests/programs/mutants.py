"""Mutation check: with any one stage of the safety filter taken out, at least one of its tests must fail.

Run as a program, it runs the tests once whole and once for each mutant, in processes of their own, and ends with exit
code 1 if a mutant lives. As a pytest plugin (``-p mutants --mutant NAME``) it takes the stage out. Production code
has no switch for it.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from mutation import ROOT, kill_all, tests_pass

HERE = Path(__file__).resolve().parent
TESTS = ROOT / "tests" / "hardware" / "safety"
FIRST = ("test_safety_stages.py", "test_safety_states.py")  # quick, and where most mutants die


def _nothing(*_: Any, **__: Any) -> None:
    """A stage that lets everything pass."""


def _without(module: str, name: str, stage: str) -> Callable[[], None]:
    """Take out one use of a check that several stages share; the stage is its first argument."""

    def take_out() -> None:
        owner = __import__(module, fromlist=[name])
        check = getattr(owner, name)
        setattr(owner, name, lambda first, *rest: None if first == stage else check(first, *rest))

    return take_out


def _replace(path: str, value: Any) -> Callable[[], None]:
    """Set ``module:attribute`` or ``module:Class.attribute``."""

    def take_out() -> None:
        module, _, attribute = path.partition(":")
        owner: Any = __import__(module, fromlist=["_"])
        *outer, last = attribute.split(".")
        for name in outer:
            owner = getattr(owner, name)
        assert hasattr(owner, last), path
        setattr(owner, last, value)

    return take_out


def _finite() -> None:
    import numpy as np

    import hardware.safety.checks as checks

    def floats(what: str, values: Any, stage: str = "finite") -> list[float]:
        return np.asarray(values, dtype=np.float64).ravel().tolist()

    checks.finite = floats


def _deadman_released() -> None:
    from hardware.safety.filter import SafetyFilter

    def deadman(self: Any, held: bool) -> None:
        self._deadman, self._deadman_at = bool(held), self._clock()

    SafetyFilter.deadman = deadman


def _anything_reached() -> None:
    import hardware.safety.checks as reach

    reach.POSITION_TOLERANCE = reach.ROTATION_TOLERANCE = math.inf


def _latch() -> None:
    from hardware.safety.states import SafetyState, StateMachine

    stopped = StateMachine.stopped

    def forgets(self: StateMachine) -> None:
        self._after = SafetyState.DISARMED
        stopped(self)

    StateMachine.stopped = forgets


def _exceptions() -> None:
    import hardware.safety.checks as checks

    def rethrown(error: Exception) -> Exception:
        raise error

    checks.unexpected = rethrown  # type: ignore[assignment]


def _fingers_at_rest() -> None:
    import robots.shapes as shapes

    shapes._swept = lambda model, data, geom, body, extra, points, radius, file: (
        shapes._in_link(model, data, geom, body, points),
        radius,
    )


def _looks_at_postures_only() -> None:
    from hardware.safety.collision import Collision

    judged = Collision.judged

    def all_of_it(self: Any, certain: bool, way: Any, seconds: float, set_points: Any) -> Any:
        return judged(self, True, way, seconds, set_points)

    Collision.judged = all_of_it


def _holds_nothing() -> None:
    import hardware.safety.collision as collision

    around = collision._around
    collision._around = lambda chain, limits: [p for p in around(chain, limits) if p.body != collision.HELD]


def _any_limits() -> None:
    import robots.limits as limits

    limits.LEAST.clear()


def _any_delays() -> None:
    import robots.limits as limits

    for name in limits.WIDEST:
        limits.WIDEST[name] = math.inf


def _no_dead_time() -> None:
    from hardware.safety.measured import Stuck

    begin = Stuck.begin

    def at_once(self: Any) -> None:
        self._delay = 0.0
        begin(self)

    Stuck.begin = at_once


def _begins_at_home() -> None:
    import hardware.safety.filter as filter_

    begins = filter_.first_set_point
    last: list[list[float]] = []

    def once(*args: Any) -> list[float]:
        """As the first time: what a controller may still hold."""
        last.append(begins(*args))
        return last[0] if max(abs(a - b) for a, b in zip(last[0], last[-1], strict=True)) < 0.02 else last[-1]

    filter_.first_set_point = once


def _simulated_by_name() -> None:
    from dataclasses import replace

    import robots.stations.contract_file as contract_file

    made = contract_file._contract

    def by_name(given: Any, path: Path, namespace: str) -> Any:
        contract = made(given, path, namespace)
        return replace(contract, simulated=contract.simulated or path.stem == "sim")

    contract_file._contract = by_name


_CHECKS, _FILTER, _GEOMETRY = (
    "hardware.safety.checks",
    "hardware.safety.filter:SafetyFilter",
    "hardware.safety.geometry",
)

MUTANTS: dict[str, Callable[[], None]] = {
    "finite": _finite,
    "names": _replace(f"{_CHECKS}:named", _nothing),
    "freshness": _without(_CHECKS, "fresh", "freshness"),
    "joint-state-age": _without(_CHECKS, "fresh", "joint state"),
    "dead-man-age": _without(_CHECKS, "fresh", "dead-man"),
    "dead-man-released": _deadman_released,
    "jump": _without(_CHECKS, "near", "jump"),
    "following": _without(_CHECKS, "near", "following"),
    "joint-box": _replace(f"{_CHECKS}:clamped", lambda positions, lower, upper: list(positions)),
    "stopping-distance": _replace(f"{_CHECKS}:stops_inside", _nothing),
    "motion": _replace("hardware.safety.motion:Motion.toward", lambda self, goal: (goal, self.v, self.a)),
    "braking": _replace(
        "hardware.safety.motion:Motion.braked", lambda self: (self.q, [0.0] * len(self.q), [0.0] * len(self.q))
    ),
    "conditions": _replace("hardware.safety.senders:Conditions.problem", lambda self: ""),
    "condition-age": _replace("robots.stations.parts:Condition.silent", lambda self, seconds: ""),
    "workspace": _replace(f"{_GEOMETRY}:Geometry.stays_in_workspace", _nothing),
    "self-collision": _replace(f"{_GEOMETRY}:Geometry.keeps_apart", _nothing),
    "obstacle": _replace(f"{_GEOMETRY}:Geometry.keeps_clear", _nothing),
    "held": _holds_nothing,
    "fingers": _fingers_at_rest,
    "between-postures": _looks_at_postures_only,
    "least-limits": _any_limits,
    "widest-delays": _any_delays,
    "dead-time": _no_dead_time,
    "singularity": _replace(f"{_GEOMETRY}:Geometry.stays_regular", _nothing),
    "output": _replace("hardware.safety.output:Output.check", _nothing),
    "reach": _anything_reached,
    "gripper-speed": _replace("hardware.safety.motion:Opening._nearer", lambda self, width, goal: goal),
    "gap": _replace(f"{_CHECKS}:running", _nothing),
    "arming": _replace(f"{_FILTER}._may_arm", lambda self, now: list(self._measured.positions or self.robot.home)),
    "rest": _replace("hardware.safety.measured:Rest.check", _nothing),
    "rest-samples": _replace("hardware.safety.measured:Rest._away", lambda self, positions: ""),
    "begin": _begins_at_home,
    "publishers": _replace("hardware.safety.senders:Publishers.problem", lambda self: ""),
    "bound-publisher": _replace("hardware.safety.senders:Publishers.bind", _nothing),
    "silent-publishers": _replace("hardware.safety.senders:Publishers.unheard", lambda self, there: ""),
    "second-operator": _replace("hardware.safety.senders:Operators.problem", lambda self: ""),
    "stranger": _replace("hardware.safety.senders:Operators.unauthorised", lambda self, caller: ""),
    "bound-operator": _replace("hardware.safety.senders:Operators.counts", lambda self, publisher: True),
    "stall": _replace("hardware.safety.output:Sending.stalled", lambda self, gap: False),
    "stall-in-a-step": _replace(f"{_FILTER}.checked", lambda self, command: command),
    "stall-in-publishing": _replace("hardware.safety.output:PUBLISHING_PERIODS", math.inf),
    "sent": _replace(f"{_FILTER}.sent", _nothing),
    "contact": _replace("hardware.observing.observer:ContactReader.push", lambda self: ""),
    "contact-problem": _replace("hardware.observing.observer:ContactReader.problem", lambda self: ""),
    "contact-publishers": _replace("hardware.safety.senders:Publishers.heard", lambda self, publisher, arm=True: arm),
    "give-way": _replace(f"{_FILTER}.contact", lambda self, reason: self.stop(reason, "contact")),
    "latch": _latch,
    "e-stop": _replace(f"{_FILTER}.estop", _nothing),
    "stop": _replace(f"{_FILTER}.stop", _nothing),
    "exception": _exceptions,
    "silence": _replace("hardware.observing.timing:Silence.look", lambda self: ""),
    "silence-held-up": _replace("hardware.observing.timing:STEP_S", math.inf),
    "simulated": _simulated_by_name,
    "monitor-gap": _replace("hardware.observing.monitor:MUST_REST", math.inf),
    "monitor-rate": _replace("hardware.observing.monitor:LimitMonitor._check_rate", lambda self, now: []),
    "controller": _replace("hardware.ros2.safety_node:SafetyNode._look_around", _nothing),
    "callers": _replace("hardware.ros2.safety_node:SafetyNode._unauthorised", lambda self, callers: ""),
}
_NODES = "tests/hardware/test_ros_nodes.py"
# The tests of stages that are not the filter's own.
ELSEWHERE: dict[str, str] = {
    "silence": "tests/hardware/test_timing.py",
    "silence-held-up": "tests/hardware/test_timing.py",
    "simulated": "tests/robots/test_contract.py",
    "monitor-gap": "tests/hardware/test_monitor.py",
    "monitor-rate": "tests/hardware/test_monitor.py",
    "controller": f"{_NODES}::test_somebody_else_at_the_controller",
    "callers": f"{_NODES}::test_a_terminal_beside_it_and_a_second_operator",
}


def pytest_addoption(parser: Any) -> None:
    parser.addoption("--mutant", choices=sorted(MUTANTS), help="the stage to take out")


def pytest_configure(config: Any) -> None:
    name = config.getoption("--mutant")
    if name:
        MUTANTS[name]()


def _tests_pass(mutant: str | None) -> bool:
    """Whether all tests of a stage pass; with None, those of all."""
    own = sorted(TESTS.glob("test_*.py"), key=lambda file: (file.name not in FIRST, file.name))
    elsewhere = [ELSEWHERE[mutant]] if mutant in ELSEWHERE else sorted(set(ELSEWHERE.values()))
    files = elsewhere if mutant in ELSEWHERE else own if mutant else [*own, *elsewhere]
    options = ("-p", "mutants", *(("--mutant", mutant) if mutant else ()))
    return tests_pass(ROOT, files, *options, path=(HERE,))


if __name__ == "__main__":
    sys.exit(kill_all("the filter", MUTANTS, _tests_pass))
