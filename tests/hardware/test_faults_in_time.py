"""Faults injected on a fake clock between policy, streamer, safety filter and arm: what becomes of the motion.

Every story begins with an arm in motion. A fault either passes unnoticed (`KEEPS`), or stops the arm within a bound
and latches with its reason. In either case the independent monitor, which stands at the arm, counts nothing.
"""

from __future__ import annotations

import math
import re
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

sys.path.insert(0, str(Path(__file__).parent))
from fault_rig import CONTRACT, STEPS, Chunk, FaultRig, passes, swing

from hardware.ros2.faults import VectorFault
from hardware.safety import JointTarget, SafetyRefused, SafetyState

KEEPS = ""
EITHER = "either"
BRAKE_S = 0.3  # from full speed to rest, with room


@pytest.fixture
def rig() -> FaultRig:
    return FaultRig().moving()


def judged(rig: FaultRig) -> None:
    summary = rig.monitor.summary()
    assert summary["violations"] == 0, summary


def ends_latched(rig: FaultRig, since: float, within_s: float, why: str) -> None:
    """The arm has stopped within the bound, stays so whatever goes on, and moves again only by reset and arm."""
    judged(rig)
    assert rig.filter.state is SafetyState.LATCHED, rig.filter.status()
    assert why in rig.filter.reason, rig.filter.reason
    assert rig.last_command - since <= within_s + BRAKE_S, rig.last_command - since
    steps = np.abs(np.diff([q for _, q in rig.commands[-3:]], axis=0)).max()
    # After a gap nothing more is sent: the arm has long stopped at the last command.
    assert steps < 1e-3 or "did not run" in rig.filter.reason, rig.filter.reason
    for link in rig.links.values():
        link.fault = passes
    rig.act, rig.held, rig.latency, rig.paused, sent = swing, True, 0.02, {}, len(rig.commands)
    rig.run(0.3)
    assert rig.filter.state is SafetyState.LATCHED and len(rig.commands) == sent
    with pytest.raises(SafetyRefused, match="latched"):
        rig.filter.arm()
    clock = any(word in rig.filter.reason for word in ("frozen", "future"))
    rig.filter.reset()
    rig.run(1.2 if clock else 0.1)  # a clock that jumped is believed again after a while
    assert rig.filter.state is SafetyState.DISARMED and len(rig.commands) == sent
    rig.arm()
    begun = rig.now
    rig.run(0.5)
    assert rig.filter.state is SafetyState.ARMED and rig.travel(begun) > 0.01, rig.filter.reason
    judged(rig)


def told(rig: FaultRig, why: str, within_s: float, *, seconds: float = 0.8) -> None:
    """What happens in the `seconds` after now is what `why` says."""
    since = rig.now
    rig.run(seconds)
    judged(rig)
    if why == KEEPS:
        assert rig.filter.state is SafetyState.ARMED, rig.filter.reason
        assert rig.travel(rig.now - 0.5) > 0.01
    elif why != EITHER or rig.filter.state is not SafetyState.ARMED:
        began = [at for at, _ in rig.commands if at > since]
        ends_latched(rig, since, within_s if why != EITHER else len(began) * 0.005, "" if why == EITHER else why)


# --- messages that get lost on the way, come late, twice, in another order ----------------------------------------


def drop(share: float) -> Callable:
    return lambda message, rng: [] if rng.random() < share else [(0.0, message)]


def delay(seconds: float) -> Callable:
    return lambda message, rng: [(seconds, message)]


def twice(apart: float) -> Callable:
    return lambda message, rng: [(0.0, message), (apart, message)]


def shuffled(most: float) -> Callable:
    return lambda message, rng: [(rng.uniform(0.0, most), message)]


@pytest.mark.long
@pytest.mark.parametrize("share", [0.01, 0.3, 0.7, 1.0])
@pytest.mark.parametrize(
    ("link", "all_lost", "within_s"),
    # A chunk lasts 0.2 s and is held for 0.05 s; targets and joint states may be 0.1 s old, the dead-man's beat 0.25 s.
    [("chunks", "ran out", 0.3), ("targets", "freshness", 0.12), ("states", "joint state", 0.12),
     ("deadman", "dead-man", 0.31)],
)  # fmt: skip
def test_lost_messages(rig: FaultRig, link: str, share: float, all_lost: str, within_s: float) -> None:
    rig.links[link].fault = drop(share)
    if share == 1.0:
        told(rig, all_lost, within_s)
    elif link in ("targets", "states") and share <= 0.3:
        told(rig, KEEPS, 0.0)  # twenty a watchdog's time: no one notices
    else:
        told(rig, EITHER, 0.0, seconds=1.5)


@pytest.mark.long
@pytest.mark.parametrize(
    ("link", "seconds", "why"),
    [
        ("chunks", 0.02, KEEPS), ("chunks", 0.06, "ran out"), ("chunks", 0.15, "ran out"), ("chunks", 0.5, "ran out"),
        ("targets", 0.005, KEEPS), ("targets", 0.05, KEEPS), ("targets", 0.2, "freshness"),
        ("targets", 0.5, "freshness"),
        ("states", 0.02, KEEPS), ("states", 0.2, "joint state"), ("states", 0.5, "joint state"),
        ("deadman", 0.05, KEEPS), ("deadman", 0.15, KEEPS), ("deadman", 0.5, "dead-man"),
    ],
)  # fmt: skip
def test_late_messages(rig: FaultRig, link: str, seconds: float, why: str) -> None:
    rig.links[link].fault = delay(seconds)
    told(rig, why, 0.31)


@pytest.mark.long
@pytest.mark.parametrize(
    ("link", "fault", "why"),
    [
        ("chunks", twice(0.0), KEEPS),  # one of the two is overwritten before it is read
        ("chunks", twice(0.03), "out of order"),
        ("chunks", shuffled(0.5), EITHER),
        ("targets", twice(0.02), KEEPS),
        ("targets", shuffled(0.06), KEEPS),
        ("states", twice(0.02), KEEPS),
        ("states", shuffled(0.03), KEEPS),
        ("deadman", twice(0.02), KEEPS),
        ("deadman", shuffled(0.1), KEEPS),
    ],
)
def test_repeated_and_reordered_messages(rig: FaultRig, link: str, fault: Callable, why: str) -> None:
    rig.links[link].fault = fault
    told(rig, why, 0.3)


# --- chunks that say the wrong thing ------------------------------------------------------------------------------


def spoilt(change: Callable[[Any], Any]) -> Callable:
    return lambda message, rng: [(0.0, change(message))]


def with_actions(change: Callable[[np.ndarray], Any]) -> Callable[[Chunk], Chunk]:
    return lambda chunk: chunk.but(actions=change(chunk.actions))


CHUNKS: dict[str, tuple[Callable[[Chunk], Chunk], str]] = {
    "nan": (with_actions(lambda a: a * math.nan), "not finite"),
    "inf": (with_actions(lambda a: a + math.inf), "not finite"),
    "too few components": (with_actions(lambda a: a[:, :-1]), "wrong length"),
    "flat": (with_actions(lambda a: a.ravel()), "wrong length"),
    "names in another order": (lambda c: c.but(names=c.names[::-1]), "names"),
    "a joint's names": (lambda c: c.but(names=CONTRACT.joints), "names"),
    "empty": (with_actions(lambda a: a[:0]), "empty"),
    "times fall": (lambda c: c.but(times=c.times[::-1]), "times"),
    "times stand": (lambda c: c.but(times=np.zeros(STEPS)), "times"),
    "times of another rate": (lambda c: c.but(times=2.0 * c.times), "times"),
    "no stamp": (lambda c: c.but(stamp=0.0), "stamp"),
    "stamp 10 s ahead": (lambda c: c.but(stamp=c.stamp + 10.0), "future"),
    "stamp 0.2 s ahead": (lambda c: c.but(stamp=c.stamp + 0.2), "future"),
    "stamp 10 s ago": (lambda c: c.but(stamp=c.stamp - 10.0), "too late"),
    "stamp is nan": (lambda c: c.but(stamp=math.nan), "stamp"),
    "another policy": (lambda c: c.but(sender="second"), "two policies"),
    # What is only too much is cut, and what is only nervous is smoothed.
    "out of range": (with_actions(lambda a: 1e6 * a), KEEPS),
    "largest step": (with_actions(lambda a: np.sign(a + 0.5)), EITHER),
    "oscillation": (with_actions(lambda a: a * (-1.0) ** np.arange(STEPS)[:, None]), EITHER),
}


@pytest.mark.long
@pytest.mark.parametrize("name", CHUNKS)
def test_bad_chunks(rig: FaultRig, name: str) -> None:
    change, why = CHUNKS[name]
    rig.links["chunks"].fault = spoilt(change)
    told(rig, why, 0.26)  # the next chunk comes within 0.2 s


def test_two_policies_at_once(rig: FaultRig) -> None:
    rig.links["chunks"].fault = lambda c, _: [(0.0, c), (0.03, c.but(sender="second", stamp=c.stamp + 0.03))]
    told(rig, "two policies", 0.3)


# --- targets, beyond what the streamer would send -----------------------------------------------------------------


def moved(change: Callable[[np.ndarray], Any]) -> Callable[[JointTarget], JointTarget]:
    return lambda target: JointTarget(target.names, change(np.array(target.positions)), target.gripper)


def alternating(size: float) -> Callable[[Any, Any], list]:
    sign = [1.0]

    def fault(target: Any, rng: Any) -> list:
        sign[0] = -sign[0]
        return [(0.0, JointTarget(target.names, np.array(target.positions) + sign[0] * size, target.gripper))]

    return fault


TARGETS: dict[str, tuple[Callable, str]] = {
    "nan": (spoilt(moved(lambda q: q * math.nan)), "finite"),
    "inf": (spoilt(moved(lambda q: np.append(q[:-1], math.inf))), "finite"),
    "huge": (spoilt(moved(lambda q: q * 1e300)), "jump"),
    "one short": (spoilt(moved(lambda q: q[:-1])), "names"),
    "reordered": (spoilt(lambda t: JointTarget(t.names[::-1], t.positions[::-1], t.gripper)), "names"),
    "other names": (spoilt(lambda t: JointTarget(("elbow", *t.names[1:]), t.positions, t.gripper)), "names"),
    "step jump": (spoilt(moved(lambda q: q + 1.0)), "jump"),
    "step within reach": (spoilt(moved(lambda q: q + 0.1)), EITHER),
    "small oscillation": (alternating(0.02), KEEPS),
    "large oscillation": (alternating(0.3), EITHER),
    "gripper nan": (spoilt(lambda t: JointTarget(t.names, t.positions, math.nan)), "gripper"),
    "gripper out of range": (spoilt(lambda t: JointTarget(t.names, t.positions, 9.0)), KEEPS),
}


@pytest.mark.long
@pytest.mark.parametrize("name", TARGETS)
def test_bad_targets(rig: FaultRig, name: str) -> None:
    fault, why = TARGETS[name]
    rig.links["targets"].fault = lambda m, rng: passes(m, rng) if isinstance(m, str) else fault(m, rng)
    told(rig, why, 0.03)


# --- joint states -------------------------------------------------------------------------------------------------


def joint_fault(what: str) -> Callable:
    fault = VectorFault()

    def apply(message: tuple, rng: Any) -> list:
        names, q, at = message
        sent = fault.apply(what, (names, q, np.empty(0), at))
        return [] if sent is None else [(0.0, (sent[0], sent[1], sent[3]))]

    return apply


@pytest.mark.long
@pytest.mark.parametrize(
    ("what", "why"),
    [("stop", "joint state"), ("nan", "joint state"), ("missing", "joint state"), ("reorder", KEEPS),
     ("stale", "frozen"), ("old", EITHER)],
)  # fmt: skip
def test_bad_joint_states(rig: FaultRig, what: str, why: str) -> None:
    rig.links["states"].fault = joint_fault(what)
    told(rig, why, 0.12)


def test_joint_states_that_only_keep_their_values(rig: FaultRig) -> None:
    """Targets are measured from where the arm seems to be, so they go nowhere, until the supervisor says frozen."""
    rig.links["states"].fault = joint_fault("freeze")
    since = rig.now
    told(rig, "frozen", 0.5)
    assert rig.travel(since) < 2.0 * CONTRACT.limits.max_jump


@pytest.mark.parametrize("length", [6, 8, 0])
def test_joint_states_of_the_wrong_length(rig: FaultRig, length: int) -> None:
    rig.links["states"].fault = lambda m, _: [(0.0, (m[0], np.resize(m[1], length), m[2]))]
    told(rig, "joint state", 0.05)


# --- clocks -------------------------------------------------------------------------------------------------------


@pytest.mark.long
@pytest.mark.parametrize("seconds", [10.0, -10.0, 0.5, -0.5, 0.01, -0.01])
def test_the_time_of_day_jumps(rig: FaultRig, seconds: float) -> None:
    rig.wall += seconds
    # Small corrections pass; a large one makes a chunk or its stamps unbelievable. Either way it is over in time.
    told(rig, KEEPS if abs(seconds) < 0.1 else EITHER, 0.3)


@pytest.mark.parametrize("seconds", [10.0, -10.0])
def test_the_arm_has_another_time_than_the_streamer(rig: FaultRig, seconds: float) -> None:
    rig.links["states"].fault = lambda m, _: [(0.0, (*m[:2], m[2] + seconds))]
    told(rig, "future" if seconds > 0 else "frozen", 0.3, seconds=2.0)


@pytest.mark.parametrize(("seconds", "jitter"), [(-0.5, 0.0), (-0.2, 0.02), (-1.0, 0.0), (0.3, 0.0), (2.0, 0.02)])
def test_an_arm_whose_clock_is_off_is_not_armed_and_says_so(seconds: float, jitter: float) -> None:
    """From the beginning: the stamps rise, the messages come in time, and the encoders have noise."""
    rig, rng = FaultRig(), np.random.default_rng(0)
    late = seconds + jitter
    rig.links["states"].fault = lambda m, _: [
        (0.0, (m[0], m[1] + rng.normal(0, 2e-4, len(m[1])), m[2] + late + jitter * rng.uniform(-1, 1)))
    ]
    rig.run(0.5)
    way = "ahead of" if seconds > 0 else "behind"
    with pytest.raises(
        SafetyRefused, match=rf"joint states on /joint_states: stamped .*clock of its sender is {way}"
    ) as no:
        rig.arm()
    (said,) = re.findall(r"stamped ([\d.]+) s", str(no.value))
    assert float(said) == pytest.approx(abs(late), abs=jitter + 0.011)
    assert "sudo chronyc makestep" in str(no.value) and not rig.commands
    status = rig.streamer.status()
    assert not status["ready"] and f"is {way}" in status["reason"], "what deploy says when it waits in vain"
    rig.links["states"].fault = passes
    rig.run(1.3)  # a clock that was set back is believed after a second
    rig.arm()
    rig.run(0.5)
    assert rig.travel(rig.now - 0.4) > 0.01


@pytest.mark.parametrize("seconds", [0.15, 0.3, 0.9])
def test_joint_states_that_come_late_while_the_arm_moves(rig: FaultRig, seconds: float) -> None:
    """As often as before, in order, and with noise: a network buffers them. The arm is elsewhere by then."""
    rng, begun = np.random.default_rng(0), rig.now

    def late(m: Any, _: Any) -> list[tuple[float, Any]]:
        grown = min(seconds, 0.5 * (rig.now - begun))  # without a pause
        return [(grown, (m[0], m[1] + rng.normal(0, 1e-4, len(m[1])), m[2]))]

    rig.links["states"].fault = late
    rig.run(0.5 * seconds + 2.5)
    assert rig.filter.state is SafetyState.LATCHED
    assert re.search(r"behind|late|jump|old|frozen", rig.filter.reason), rig.filter.reason
    assert rig.last_command - begun < 0.6 + 2 * 0.1 / 0.5, "soon after they are older than 0.1 s"


def test_one_message_that_waited_proves_nothing(rig: FaultRig) -> None:
    calls = iter(range(10**6))
    rig.links["states"].fault = lambda m, _: [(0.0, (*m[:2], m[2] - (0.3 if next(calls) % 40 == 7 else 0.0)))]
    told(rig, KEEPS, 0.3)


def test_a_frozen_time_of_day(rig: FaultRig) -> None:
    stamp = rig.wall + rig.now
    rig.links["states"].fault = lambda m, _: [(0.0, (*m[:2], stamp))]
    told(rig, "frozen", 0.12)


def test_joint_states_without_stamps(rig: FaultRig) -> None:
    rig.links["states"].fault = lambda m, _: [(0.0, (*m[:2], 0.0))]
    told(rig, "no stamp", 0.05)


# --- processes ----------------------------------------------------------------------------------------------------


@pytest.mark.long
@pytest.mark.parametrize(
    ("process", "seconds", "why"),
    [
        ("policy", 0.02, KEEPS), ("policy", 0.6, "gone"), ("policy", math.inf, "gone"),
        ("streamer", 0.05, KEEPS), ("streamer", 0.15, "freshness"), ("streamer", math.inf, "freshness"),
        ("safety", 0.02, KEEPS), ("safety", 0.05, KEEPS), ("safety", 0.15, EITHER), ("safety", 0.2, EITHER),
        ("safety", 0.24, EITHER), ("safety", 0.3, "gap"), ("safety", 3.0, "gap"),
    ],
)  # fmt: skip
def test_a_process_that_does_not_run(rig: FaultRig, process: str, seconds: float, why: str) -> None:
    """Stopped for a while and continued, or for good."""
    rig.paused[process] = rig.now + seconds
    told(rig, why, 0.31 if process != "safety" else 0.02, seconds=min(seconds, 3.0) + 1.0)


def test_news_that_waited_for_a_stopped_safety_node_do_not_set_the_arm_moving(rig: FaultRig) -> None:
    """It runs again, and hears first of all that the operator and the streamer are gone."""
    since, sent = rig.now, len(rig.commands)
    rig.paused["safety"] = rig.now + 0.6
    rig.run(0.5)
    rig.supervisor.operators_alive(0)
    rig.supervisor.streamers_alive(0, "targets")
    rig.supervisor.streamers_alive(1, "targets")
    assert rig.filter.state is SafetyState.LATCHED
    rig.run(0.5)
    assert len(rig.commands) == sent
    ends_latched(rig, since, 0.02, "gap")


def test_a_safety_node_that_is_gone_leaves_the_arm_at_its_last_command(rig: FaultRig) -> None:
    rig.paused["safety"] = math.inf
    sent, at = len(rig.commands), rig.arm_q
    rig.run(2.0)
    assert len(rig.commands) == sent and np.array_equal(rig.arm_q, at)
    judged(rig)


@pytest.mark.long
@pytest.mark.parametrize("latency", [0.01, 0.06, 0.25, 0.6])
def test_a_slow_policy(rig: FaultRig, latency: float) -> None:
    rig.latency = latency
    told(rig, KEEPS if latency < 0.05 else "ran out", 0.3)


def test_a_policy_that_was_always_too_slow() -> None:
    rig = FaultRig()
    rig.latency = 0.3
    rig.run(0.3)
    rig.arm()
    told(rig, "too late", 0.6)


def stamp_ns(rig: FaultRig, ago: float = 0.0) -> int:
    """Of an observation so long ago."""
    return round(1e9 * (rig.wall + rig.now - ago))


@pytest.mark.parametrize("part", range(4))
def test_the_policy_says_that_it_cannot_go_on(rig: FaultRig, part: int) -> None:
    """At any moment of a chunk, without waiting for its end."""
    rig.run(0.05 * part)
    since = rig.now
    rig.streamer.policy_stop(stamp_ns(rig), "camera front: the picture is black", "policy")
    rig.run(0.02)
    assert rig.filter.state is SafetyState.BRAKING, rig.filter.status()
    rig.run(1.0)
    ends_latched(rig, since, 0.02, "the picture is black")


def test_a_stop_by_another_than_the_policy_is_two_policies(rig: FaultRig) -> None:
    since = rig.now
    rig.streamer.policy_stop(stamp_ns(rig), "all is well", "a stranger")
    rig.run(1.0)
    ends_latched(rig, since, 0.02, "two policies at once")


def test_a_stop_from_before_arming_is_none_and_one_before_the_first_chunk_is() -> None:
    rig = FaultRig()
    rig.asks = False
    rig.run(0.3)
    rig.streamer.policy_stop(stamp_ns(rig), "of an arm at rest", "policy")
    rig.arm()
    rig.run(0.1)
    rig.streamer.policy_stop(stamp_ns(rig, ago=0.5), "of the last arming", "policy")
    rig.run(0.4)
    assert rig.filter.state is SafetyState.ARMED and rig.streamer.stopped == ""
    rig.streamer.policy_stop(stamp_ns(rig), "the policy failed", "policy")
    rig.run(0.1)
    assert rig.streamer.last_stop == "the policy failed"
    assert rig.filter.state is not SafetyState.ARMED and "the policy failed" in rig.filter.reason


# --- the operator -------------------------------------------------------------------------------------------------


def test_the_dead_man_released_in_mid_chunk(rig: FaultRig) -> None:
    rig.held = False
    told(rig, "released", 0.06)


@pytest.mark.parametrize("before", [None, "disarm", "stop"])
def test_emergency_stop_in_mid_chunk_and_while_braking(rig: FaultRig, before: str | None) -> None:
    since = rig.now
    if before == "disarm":
        rig.filter.disarm()
    elif before == "stop":
        rig.filter.stop("the chunk is spoilt")
    rig.run(0.02)
    rig.filter.estop()
    rig.run(1.0)
    ends_latched(rig, since, 0.02, "spoilt" if before == "stop" else "e-stop")


@pytest.mark.long
def test_every_fault_again_at_another_moment_and_all_links_at_once() -> None:
    """Twenty stories of random length with random faults on every link."""
    rng = np.random.default_rng(0)
    armed = latched = 0
    for seed in range(20):
        rig = FaultRig(seed).moving()
        rig.run(rng.uniform(0.0, 0.4))
        for link in rig.links.values():
            link.fault = (drop, delay, twice, shuffled)[rng.integers(4)](float(10.0 ** rng.uniform(-2.5, -0.1)))
        if rng.random() < 0.3:
            rig.paused[("policy", "streamer", "safety")[rng.integers(3)]] = rig.now + rng.uniform(0.0, 0.5)
        rig.wall += float(rng.choice([0.0, 0.0, 0.02, -3.0]))
        rig.run(2.0)
        judged(rig)
        state = rig.filter.state
        armed, latched = armed + (state is SafetyState.ARMED), latched + (state is SafetyState.LATCHED)
        assert state in (SafetyState.ARMED, SafetyState.LATCHED), rig.filter.status()
    assert latched > 7 and armed + latched == 20
