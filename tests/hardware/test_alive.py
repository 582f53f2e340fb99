"""How many publishers are alive, whatever of it the middleware reports, and in which order."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from hardware.ros2.senders import Alive


class Reports:
    """Events as the middleware sends them, and the numbers that follow."""

    def __init__(self) -> None:
        self.counts: list[int] = []
        self.events = Alive(self.counts.append).events

    def leases(self, alive: int, lost: int = 0) -> int:
        self.events["liveliness"](SimpleNamespace(alive_count=alive, not_alive_count=lost))
        return self.counts[-1]

    def matched(self, count: int) -> int:
        self.events["matched"](SimpleNamespace(current_count=count))
        return self.counts[-1]


@pytest.fixture
def reports() -> Reports:
    return Reports()


def test_one_comes_and_goes(reports: Reports) -> None:
    assert (reports.matched(1), reports.leases(1)) == (1, 1)
    assert (reports.leases(0), reports.matched(0)) == (0, 0), "at once, not when it is unmatched"
    assert (reports.leases(1), reports.matched(1)) == (1, 1), "in the other order"
    assert (reports.matched(0), reports.leases(0)) == (1, 0)


def test_one_is_killed_and_started_again(reports: Reports) -> None:
    assert (reports.matched(1), reports.leases(1), reports.leases(0, lost=1)) == (1, 1, 0)
    assert (reports.matched(2), reports.leases(1, lost=1)) == (1, 1), "the dead one is matched for 20 s"
    assert (reports.leases(1), reports.matched(1)) == (1, 1), "and never counts as a second"


def test_a_lease_that_is_never_reported(reports: Reports) -> None:
    assert reports.matched(1) == 1
    assert reports.matched(2) == 2 and reports.leases(1) == 2, "a second, whose lease is"
    assert reports.leases(2) == 2, "late"
    assert reports.leases(1, lost=1) == 1 and reports.matched(1) == 1


def test_a_lost_lease_of_which_nothing_was_heard_before(reports: Reports) -> None:
    assert (reports.matched(1), reports.leases(0, lost=1)) == (1, 0)
    assert reports.matched(0) == reports.leases(0) == 0


def test_two_at_once(reports: Reports) -> None:
    assert (reports.matched(1), reports.leases(1), reports.matched(2), reports.leases(2)) == (1, 1, 2, 2)
    assert (reports.leases(1), reports.matched(1)) == (1, 1)
