"""When a safety node that hangs is reported, on a fake clock."""

from __future__ import annotations

import pytest

from hardware.observing.clocks import SenderClock
from hardware.observing.timing import SafetySilent, Silence


class Clock:
    now = 50.0

    def __call__(self) -> float:
        return self.now


def test_six_reports_that_do_not_come() -> None:
    clock = Clock()
    silence = Silence(clock)
    for _ in range(500):  # before the first report it may take as long as it likes
        clock.now += 0.02
        assert silence.look() == ""
    for _ in range(100):
        clock.now += 0.1
        silence.heard()
        silence.check()
    last = clock.now
    with pytest.raises(SafetySilent, match=r"silent for more than 0\.6 s: use the hardware emergency stop"):
        for _ in range(60):
            clock.now += 0.02
            silence.check()
    assert 0.59 < clock.now - last < 0.7
    assert silence.look() == silence.look(), "one line, however often it is asked for"
    silence.heard()
    silence.check()


@pytest.mark.parametrize("held_up_s", [0.5, 3.0, 60.0])
def test_a_listener_that_was_held_up_itself_has_not_heard_what_waits_for_it(held_up_s: float) -> None:
    clock = Clock()
    silence = Silence(clock)
    silence.heard()
    clock.now += held_up_s
    silence.check()
    for _ in range(10):  # until it gets round to reading
        clock.now += 0.02
        silence.check()
    silence.heard()
    silence.check()


def test_messages_that_waited_together_are_no_clock_that_is_off() -> None:
    """The listener was held up for 0.3 s and reads what has queued; a sender whose clock is behind has no young one."""
    now = [50.0]
    sender = SenderClock(0.1, lambda: now[0], lambda: 1e9 + now[0])
    assert sender.problem() == ""
    for _ in range(30):
        now[0] += 0.01
        sender.update(1e9 + now[0] - 0.002)
    now[0] += 0.3
    for age in (0.3, 0.2, 0.1, 0.0):
        sender.update(1e9 + now[0] - age)
    assert sender.problem() == ""
    for i in range(25):
        now[0] += 0.01
        sender.update(1e9 + now[0] - 0.15)
        assert i > 9 or not sender.problem(), "what was young is not long ago"
    assert "stamped 0.15 s ago" in sender.problem() and "behind" in sender.problem()
