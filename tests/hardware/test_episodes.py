"""The life of a recording, event by event."""

from __future__ import annotations

import itertools

import pytest

from hardware.recording.episodes import EpisodeCommand, EpisodeLifecycle, OperatorVerdict, Phase
from hardware.teleop.device import EpisodeEvent as E


def begun(wanted: int = 2, **options) -> EpisodeLifecycle:
    """A session that records its first episode."""
    e = EpisodeLifecycle(wanted, **options)
    assert e.handle(E.START) == [] and e.phase is Phase.STARTING, "not before everything is there"
    assert e.up() == [] and e.phase is Phase.WAITING
    assert e.handle(E.START) == [EpisodeCommand.PREPARE] and e.phase is Phase.PREPARING
    assert e.handle(E.START) == []
    if e.placing:
        assert e.prepared() == [] and e.phase is Phase.READY
        assert e.handle(E.START) == [EpisodeCommand.BEGIN]
    else:
        assert e.prepared() == [EpisodeCommand.BEGIN]
    assert e.phase is Phase.RECORDING and e.armed
    return e


def test_episodes_are_counted_and_the_last_one_ends_the_session() -> None:
    e = begun()
    assert e.handle(E.SUCCESS) == [EpisodeCommand.STORE, EpisodeCommand.DISARM] and e.verdict == OperatorVerdict(True)
    assert e.phase is Phase.WAITING and e.saving and not e.armed and e.number == 1
    assert e.saved() == [] and (e.recorded, e.successes) == (1, 1)
    assert e.handle(E.START) == [EpisodeCommand.PREPARE] and e.prepared() == [EpisodeCommand.BEGIN]
    assert e.handle(E.FAILURE) == [EpisodeCommand.STORE, EpisodeCommand.DISARM] and e.verdict == OperatorVerdict(False)
    assert e.saved() == [EpisodeCommand.DISARM, EpisodeCommand.END] and (e.recorded, e.successes, e.dropped) == (
        2,
        1,
        0,
    )
    assert e.phase is Phase.ENDED and "all 2" in e.message
    for event in E:
        assert e.handle(event) == []


def test_the_next_start_waits_until_the_last_episode_is_stored() -> None:
    e = begun()
    e.handle(E.SUCCESS)
    assert e.handle(E.START) == [] and e.phase is Phase.WAITING
    assert e.saved() == [EpisodeCommand.PREPARE] and e.phase is Phase.PREPARING
    e.prepared()
    e.handle(E.SUCCESS)
    e.handle(E.START)
    e.handle(E.DISCARD)  # thought better of it
    assert e.saved() == [EpisodeCommand.DISARM, EpisodeCommand.END]


def test_discard_waits_and_redo_begins_anew() -> None:
    e = begun()
    assert e.handle(E.DISCARD) == [EpisodeCommand.DROP, EpisodeCommand.DISARM] and e.saving
    assert e.saved() == [] and e.phase is Phase.WAITING and (e.recorded, e.dropped) == (0, 1)
    e.handle(E.START)
    e.prepared()
    assert e.handle(E.REDO) == [EpisodeCommand.DROP, EpisodeCommand.DISARM] and e.phase is Phase.WAITING
    assert e.saved() == [EpisodeCommand.PREPARE] and e.prepared() == [EpisodeCommand.BEGIN]
    assert e.number == 0 and e.dropped == 2


def test_what_makes_no_sense_is_ignored_and_said() -> None:
    e = EpisodeLifecycle(2)
    e.up()
    for event in (E.SUCCESS, E.FAILURE, E.REDO):
        assert e.handle(event) == [] and "nothing is being recorded" in e.message
    assert e.judged(OperatorVerdict(True)) == [] and e.stopped("late") == [] and e.refused("late") == []


def test_a_stop_drops_the_episode_and_start_goes_on() -> None:
    e = begun(first=6)
    assert e.stopped("dead-man") == [EpisodeCommand.DROP, EpisodeCommand.DISARM]
    assert e.message == "episode 7 dropped: dead-man. Press Start to go on" and e.phase is Phase.WAITING
    assert e.handle(E.START) == [] and e.saved() == [EpisodeCommand.PREPARE]


def test_a_refusal_can_be_tried_again_and_preparing_called_off() -> None:
    e = EpisodeLifecycle(1)
    e.up()
    e.handle(E.START)
    assert e.refused("no joint states") == [EpisodeCommand.DISARM] and "no joint states" in e.message
    assert e.handle(E.START) == [EpisodeCommand.PREPARE]
    assert e.handle(E.DISCARD) == [EpisodeCommand.DISARM] and e.phase is Phase.WAITING
    assert e.prepared() == [EpisodeCommand.DISARM], "armed too late: disarmed at once"


def test_on_a_real_arm_the_operator_puts_it_in_its_place_first() -> None:
    e = begun(3, placing=True)
    assert e.handle(E.SUCCESS) == [EpisodeCommand.STORE] and e.phase is Phase.READY and e.armed
    assert e.handle(E.START) == [] and e.saved() == [EpisodeCommand.BEGIN], "START waited"
    assert e.handle(E.REDO) == [EpisodeCommand.DROP] and e.phase is Phase.READY and e.armed
    e.saved()
    assert e.handle(E.DISCARD) == [EpisodeCommand.DISARM] and e.phase is Phase.WAITING
    e.handle(E.START)
    e.prepared()
    assert e.stopped("dead-man") == [EpisodeCommand.DISARM] and e.dropped == 1, "nothing was being recorded"


@pytest.mark.parametrize("end", ["stopped", "discarded"])
def test_a_start_that_waits_for_the_disk_is_forgotten_when_the_arm_is_stopped(end: str) -> None:
    e = begun(3, placing=True)
    e.handle(E.SUCCESS)
    assert e.handle(E.START) == [] and e.phase is Phase.READY and e.saving
    assert (e.stopped("emergency stop") if end == "stopped" else e.handle(E.DISCARD)) == [EpisodeCommand.DISARM]
    assert e.saved() == [] and e.phase is Phase.WAITING, "only the operator arms the arm again"
    assert e.handle(E.START) == [EpisodeCommand.PREPARE]


def test_quit_at_any_time() -> None:
    e = begun()
    assert e.handle(E.QUIT) == [EpisodeCommand.DROP, EpisodeCommand.DISARM, EpisodeCommand.END] and e.dropped == 1
    e = begun()
    e.handle(E.SUCCESS)
    assert e.handle(E.QUIT) == [EpisodeCommand.DISARM, EpisodeCommand.END]
    assert e.saved() == [] and e.recorded == 1, "what was to be stored is stored"
    e = EpisodeLifecycle(1)
    assert e.handle(E.QUIT) == [EpisodeCommand.DISARM, EpisodeCommand.END]


def test_the_clock_ends_an_episode() -> None:
    e = begun()
    assert e.judged(OperatorVerdict(False, truncated=True)) == [EpisodeCommand.STORE, EpisodeCommand.DISARM]
    e.saved()
    assert e.recorded == 1 and e.successes == 0


def test_an_episode_that_could_not_be_stored_is_not_counted() -> None:
    e = begun()
    e.handle(E.SUCCESS)
    e.lost()
    assert (e.recorded, e.dropped, e.saving, e.number) == (0, 1, False, 0)
    assert e.end("disk full") == [EpisodeCommand.DISARM, EpisodeCommand.END] and e.end("again") == []


def test_alone_it_gives_up_after_some_in_vain() -> None:
    e = EpisodeLifecycle(5, give_up=3)
    e.up()
    for k in range(3):
        assert e.handle(E.START) == [EpisodeCommand.PREPARE]
        e.prepared()
        if k == 1:  # one that is stored: it is not in vain
            e.judged(OperatorVerdict(True))
            e.saved()
            e.handle(E.START)
            e.prepared()
        commands = e.stopped("camera gone")
        assert (EpisodeCommand.END in commands) is False
        e.saved()
    e.handle(E.START)
    assert EpisodeCommand.END in e.refused("camera gone") and e.gave_up == "camera gone"


def test_teleoperation_alone_never_records() -> None:
    e = EpisodeLifecycle(0, recording=False)
    e.up()
    e.handle(E.START)
    assert e.prepared() == [] and e.phase is Phase.READY
    assert e.handle(E.START) == [] and e.phase is Phase.READY
    assert e.handle(E.SUCCESS) == [EpisodeCommand.DISARM] and e.phase is Phase.WAITING
    assert e.handle(E.QUIT) == [EpisodeCommand.DISARM, EpisodeCommand.END]


def test_nothing_left_to_record() -> None:
    e = EpisodeLifecycle(0)
    assert e.up() == [EpisodeCommand.DISARM, EpisodeCommand.END]


@pytest.mark.long
@pytest.mark.parametrize("placing", [False, True])
def test_whatever_comes_the_arm_is_disarmed_before_it_is_prepared_and_every_episode_ends(placing: bool) -> None:
    """All sequences of five things that can happen."""
    happen = {
        **{event.value: lambda e, event=event: e.handle(event) for event in E if event is not E.QUIT},
        "prepared": lambda e: e.prepared() if e.phase is Phase.PREPARING else [],
        "stopped": lambda e: e.stopped("x"),
        "saved": lambda e: e.saved() if e.saving else [],
    }
    for names in itertools.product(happen, repeat=5):
        e, armed, running, open_ = EpisodeLifecycle(9, placing=placing), False, False, 0
        e.up()
        for name in names:
            saving = e.saving
            for do in happen[name](e):
                if do is EpisodeCommand.PREPARE:
                    assert not armed or name == "prepared"
                elif do is EpisodeCommand.BEGIN:
                    assert not running and not e.saving, (names, name)
                    running = True
                elif do in (EpisodeCommand.STORE, EpisodeCommand.DROP):
                    assert running and not saving, (names, name)
                    running, open_ = False, open_ + 1
                elif do is EpisodeCommand.DISARM:
                    armed = False
            armed |= e.armed
            open_ -= name == "saved" and saving
            assert running == (e.phase is Phase.RECORDING) and e.saving == bool(open_), (names, name)
            assert 0 <= e.recorded <= 5 and e.successes <= e.recorded
