"""Episodes by kind: what moves the arm, and what befalls it in mid-motion; judged by finite differences.

Each begins at the arm's home and ends at rest. A controller whose goal is cancelled, or which gives up, holds where the
arm is measured: that step is its own, no sender can prevent it, and the milliseconds from there until it follows a
message again are judged apart.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np
from maker_chain import CONTROL_S, Chain, Gated, Person, PersonSide, PolicySide, wandering

from hardware.safety import SafetyState
from hardware.teleop.device import EpisodeEvent

ACCELERATION, JERK = 10.0, 5000.0  # of an FR3 [rad/s², rad/s³]: rate_limiting.h of libfranka
ARMED_S = 5.0  # most of the way to an arm that is armed
MOVES_S, REST_S = 1.2, 4.0  # motion behind what befalls it; most of the way to rest
HELD_MS, TOLERANCE = 200, 0.02  # an arm that is held back, and what a controller endures [rad]

Side = PolicySide | PersonSide
Fault = Callable[[Chain, Side], object]


@dataclass(frozen=True)
class Episode:
    """What was asked for.

    Attributes:
      way: (T, 7) of each millisecond [rad].
      own: (begin, end) in milliseconds of each time in which the controller held the arm, unasked.
      ended: state and reason of the safety filter before the end was asked for.
      refused: messages that the controller did not take.
    """

    way: np.ndarray
    own: tuple[tuple[int, int], ...]
    ended: str
    refused: tuple[str, ...]

    def pieces(self) -> Iterator[np.ndarray]:
        """The way but for the controller's own steps."""
        last = 0
        for begin, end in (*self.own, (len(self.way), 0)):
            if begin - last > 4:
                yield self.way[last:begin]
            last = end

    def largest(self) -> tuple[float, float]:
        """Greatest acceleration [rad/s²] and jerk [rad/s³], the controller's own steps left out."""
        return tuple(max(one) for one in zip(*map(largest, self.pieces()), strict=True))  # type: ignore[return-value]

    def own_step(self) -> float:
        """Greatest acceleration of the controller's own steps [rad/s²]."""
        return max((largest(self.way[max(begin - 3, 0) : end + 3])[0] for begin, end in self.own), default=0.0)


def largest(way: np.ndarray) -> tuple[float, float]:
    """Greatest acceleration [rad/s²] and jerk [rad/s³] of (T, n) set-points a millisecond apart."""
    return tuple(float(np.abs(np.diff(way, n=k, axis=0)).max()) / 0.001**k for k in (2, 3))  # type: ignore[return-value]


# --- what moves the arm ------------------------------------------------------------------------------------------


def by_policy(chain: Chain, **options: object) -> PolicySide:
    rng = chain.rng
    side = PolicySide(chain, wandering(rng, rng.random() < 0.3), **options)  # type: ignore[arg-type]
    chain.armings = 1
    return side


def late(chain: Chain) -> PolicySide:
    """Chunks under way for up to five control steps, and once in a while for longer than they last."""
    slow = chain.rng.uniform(0.5, 5.0)
    times = chain.rng.uniform(0.3, 1.0, 99) * slow * CONTROL_S + 0.3 * (chain.rng.random(99) < 0.03)
    return by_policy(chain, steps=12, late_s=lambda n: float(times[n % 99]))


def missing(chain: Chain) -> PolicySide:
    """One never comes, or two in a row, by which the chunk before runs out."""
    first = int(chain.rng.integers(2, 6))
    lost = range(first, first + int(chain.rng.integers(1, 3)))
    return by_policy(chain, late_s=lambda n: None if n in lost else 0.02)


def replaced(chain: Chain) -> PolicySide:
    """A new chunk every control step or two, before the last is done; the policy has thought of something else."""
    return by_policy(chain, execute=int(chain.rng.integers(1, 3)), late_s=lambda n: 0.01 + 0.015 * (n % 3))


def teleoperation(chain: Chain) -> PersonSide:
    """A hand that jerks, lets the clutch go, and takes it again once or twice."""
    first, second = chain.rng.uniform(0.5, 1.2), chain.rng.uniform(2.2, 3.0)
    free = [(first, first + chain.rng.uniform(0.05, 0.6)), (second, second + 0.1)]
    engaged = lambda since: not any(a <= since < b for a, b in free)  # noqa: E731
    return PersonSide(chain, Person(chain.clock, wandering(chain.rng, chain.rng.random() < 0.5), engaged))


def hand_over(chain: Chain) -> PersonSide:
    """A person takes over from a policy in mid-motion, jerks, and hands back, twice or more."""
    rng = chain.rng
    begin, turns = rng.uniform(0.6, 1.0), rng.uniform(0.15, 0.7, 8)
    edges = begin + np.cumsum(turns)
    engaged = lambda since: since > begin and int(np.searchsorted(edges, since)) % 2 == 0  # noqa: E731
    hand = wandering(rng, rng.random() < 0.5)
    person = Person(chain.clock, hand, engaged)
    times = rng.uniform(0.005, 0.08, 99)
    return PersonSide(chain, person, Gated(wandering(rng, False)), lambda n: float(times[n % 99]))


# --- what befalls it ---------------------------------------------------------------------------------------------


def nothing(chain: Chain, side: Side) -> None: ...


def told(act: str, *words: str) -> Fault:
    """A person stops the arm, and half of the time resets and arms it again."""

    def fault(chain: Chain, side: Side) -> None:
        chain.tell(lambda: getattr(chain.filter, act)(*words))
        if isinstance(side, PolicySide) and chain.rng.random() < 0.5:
            chain.at(chain.now + 0.4, lambda: setattr(chain, "armings", 1))

    return fault


def released(chain: Chain, side: Side) -> None:
    assert isinstance(side, PolicySide)
    side.held = False


def cancelled(chain: Chain, side: Side) -> None:
    chain.cancel()


def held_back(chain: Chain, side: Side) -> None:
    chain.held_back = HELD_MS


def killed(name: str) -> Fault:
    def fault(chain: Chain, side: Side) -> None:
        if name in ("safety", "driver"):
            getattr(chain, name).alive = False
        elif isinstance(side, PersonSide):
            side.kill()
        else:
            getattr(side, f"kill_{name}")()

    return fault


def held_up(chain: Chain, side: Side) -> None:
    """The safety node does not run for up to 0.2 s."""
    chain.safety.due += chain.rng.uniform(0.02, 0.2)


KINDS: dict[str, tuple[Callable[[Chain], Side], Fault]] = {
    "policy": (by_policy, nothing),
    "late chunks": (late, nothing),
    "missing chunk": (missing, nothing),
    "replaced chunks": (replaced, nothing),
    "teleoperation": (teleoperation, nothing),
    "hand-over": (hand_over, nothing),
    "stop": (by_policy, told("stop", "a person")),
    "e-stop": (late, told("estop")),
    "disarmed": (replaced, told("disarm")),
    "dead-man": (by_policy, released),
    "stop in a hand-over": (hand_over, told("stop", "a person")),
    "safety held up": (by_policy, held_up),
    "kill policy": (by_policy, killed("policy")),
    "kill streamer": (by_policy, killed("streamer")),
    "kill safety": (by_policy, killed("safety")),
    "kill driver": (by_policy, killed("driver")),
    "kill teleop": (teleoperation, killed("teleop")),
    "kill in a hand-over": (hand_over, killed("teleop")),
    "kill safety in teleoperation": (teleoperation, killed("safety")),
    "cancel": (by_policy, cancelled),
    "abort": (by_policy, held_back),
}
OF_THE_CONTROLLER = ("cancel", "abort")
"""Kinds with steps of the controller's own: libfranka would end them by a reflex, whoever sends."""


def episode(rng: np.random.Generator, kind: str) -> Episode:
    """One episode of this kind, to its rest."""
    moves, fault = KINDS[kind]
    chain = Chain(rng, tolerance=TOLERANCE if kind == "abort" else 0.0)
    side = moves(chain)
    assert chain.run(lambda: chain.filter.state is SafetyState.ARMED, ARMED_S), (kind, chain.filter.status())
    befalls = chain.now + rng.uniform(0.5, 1.3)
    chain.run(lambda: False, befalls - chain.now)
    fault(chain, side)
    longer = 1.5 if isinstance(side, PersonSide) else 0.0
    chain.run(lambda: False, MOVES_S + longer)
    ended = f"{chain.filter.state.value}: {chain.filter.reason}"
    if isinstance(side, PersonSide):
        side.session.do(side.session.episodes.handle(EpisodeEvent.QUIT))
    chain.tell(chain.filter.disarm)
    rests = chain.run(lambda: chain.at_rest and (chain.filter.state is not SafetyState.ARMED or not chain.safety.alive),
                      REST_S)  # fmt: skip
    if isinstance(side, PersonSide):
        side.close()
    assert rests, f"{kind}: what is asked for still moves {REST_S} s behind its end; {chain.filter.status()}"
    return Episode(np.array(chain.asked), tuple((a, b) for a, b in chain.own), ended, tuple(chain.refused))


def plan(number: int, seed: int) -> Iterator[tuple[str, str, np.random.Generator]]:
    """Name, kind and source of chance of so many episodes, the kinds in turn."""
    kinds = list(KINDS)
    for k in range(number):
        kind = kinds[k % len(kinds)]
        yield f"{kind} {k // len(kinds)}", kind, np.random.default_rng([seed, k])


def trimmed(way: np.ndarray, margin: int = 20) -> np.ndarray:
    """Without the milliseconds before and after it in which nothing moves."""
    moves = np.flatnonzero(np.abs(np.diff(way, axis=0)).max(1) > 1e-9)
    if not len(moves):
        return way[:margin]
    return way[max(moves[0] - margin, 0) : moves[-1] + margin + 1]
