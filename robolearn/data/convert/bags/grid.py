"""Messages at irregular times → values on the grid of the control rate: the newest at or before each grid point.

    frame i at t_i = t_0 + i/hz,    observation: the newest message with stamp ≤ t_i, no older than max_age
                                    action:      the newest command with stamp < t_{i+1}, no older than max_age or 1/hz

so that the action of a frame is what was commanded while it lasted. Times are nanoseconds; stored stamps are seconds in
float64, which at today's dates are exact to 0.24 µs, so `SLACK_NS` forgives that much.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from robolearn.core import BadInput

Times = NDArray[np.int64]

SLACK_NS = 1_000


def grid(begin_ns: int, end_ns: int, hz: float) -> Times:
    """(T,) the times of the frames that end at or before `end_ns`, from `begin_ns` on."""
    count = int((end_ns - begin_ns + SLACK_NS) * hz / 1e9)
    return begin_ns + np.round(np.arange(max(count, 0)) * (1e9 / hz)).astype(np.int64)


def newest(stamps: Times, at: Times) -> NDArray[np.int64]:
    """(T,) the last of the rising (n,) `stamps` at or before each of (T,) `at`; −1 where there is none."""
    return np.searchsorted(stamps, at + SLACK_NS, side="right") - 1


def newest_before(stamps: Times, at: Times) -> NDArray[np.int64]:
    """(T,) the last of the rising (n,) `stamps` before each of (T,) `at`; −1 where there is none."""
    return np.searchsorted(stamps, at - SLACK_NS, side="left") - 1


def check_age(stamps: Times, chosen: NDArray[np.int64], at: Times, max_age_s: float, where: str, begin_ns: int) -> None:
    """Refuse a grid point whose newest message is older than `max_age_s`.

    Raises:
      BadInput: it names the frame, its time in the bag, and how old the message is.
    """
    if not len(at):
        return
    age = np.where(chosen >= 0, at - stamps[np.maximum(chosen, 0)], np.iinfo(np.int64).max)
    late = np.flatnonzero(age > round(max_age_s * 1e9) + 2 * SLACK_NS)
    if not len(late):
        return
    i = int(late[0])
    place = f"{where}, frame {i}, {1e-9 * (at[i] - begin_ns):.3f} s into the bag"
    if chosen[i] < 0:
        raise BadInput(place, got="no message before it", expected=f"one every {max_age_s:g} s at least")
    following = stamps[stamps > stamps[chosen[i]]]
    gap = f"a gap of {1e-9 * (following[0] - stamps[chosen[i]]):.3f} s" if len(following) else "no more messages"
    got = f"{gap}, the newest message is {1e-9 * age[i]:.3f} s old"
    raise BadInput(place, got=got, expected=f"at most {max_age_s:g} s (max_age_s of the contract)")
