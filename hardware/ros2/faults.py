"""Sensor faults that can be switched on in the simulated arm, e.g. joint states that freeze and cameras that fail.

A fault is written ``where:what``, several with commas between them, e.g. ``joint_states:freeze,camera:black``:

    joint_states, objects, contact
                            stop      nothing is sent any more
                            freeze    the values stay, the stamps go on
                            stale     one message is repeated, stamp and all
                            old       every second message is one from 0.1 s ago
                            late      every message comes 0.3 s after its stamp
                            restamped the values of 0.5 s ago, with the noise of an encoder and new stamps
                            nan       the first value is not a number
                            reorder   the same values under the same names, the other way round
                            jump      the first value is half a radian (or metre) away
                            turn      the first value is one turn on
                            missing   the first name and its value are left out
                            zeros     every value is 0, as drivers send before their first reading
                            jitter    as freeze, but for the last value, a finger's, which goes to and fro
    camera                  stop, freeze, black, swap (its pictures are stated to be another camera's), late and ahead
                            (stamped 1 s ago, or in the future), flicker (as freeze, but for one bit, another each
                            time), same (every camera sends the first one's)
    driver                  program_stopped, protective_stop, slow: of the emulator of ur_robot_driver
                            cancelled, aborted, held, slow: of a trajectory controller's, see `emulators.ros2_control`
    clock                   zero, or an offset of all stamps in seconds, e.g. clock:-10

Of two arms both have it, or with its name before the place one of them: ``right/joint_states:freeze``.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Collection, Mapping

import numpy as np
from numpy.typing import NDArray

from robolearn.core.errors import BadInput

Array = NDArray[np.float64]
Sample = tuple[tuple[str, ...], Array, Array, float]
"""Names, positions, velocities (may be empty), stamp [s]."""

_VALUES = ("nan", "jump", "turn", "reorder", "missing", "zeros")
VECTOR = ("stop", "freeze", "stale", "old", "late", "restamped", "jitter", *_VALUES)
FAULTS: Mapping[str, tuple[str, ...]] = {
    "joint_states": VECTOR,
    "objects": VECTOR,
    "contact": VECTOR,
    "camera": ("stop", "freeze", "black", "swap", "late", "ahead", "flicker", "same"),
    "driver": ("program_stopped", "protective_stop", "slow", "cancelled", "aborted", "held"),
    "clock": ("zero", "<seconds>"),
}
_OLD_S, _LATE_S, _RESTAMPED_S = 0.1, 0.3, 0.5
_NOISE = 2e-4  # of an encoder, to and fro
_OFF_S = {"late": -1.0, "ahead": 1.0}  # of the stamps of pictures


OF_AN_ARM = ("joint_states", "contact", "driver", "clock")


def parse(text: str, arms: Collection[str] | None = None) -> dict[str, str]:
    """Place → fault, of one arm ``<arm>/<place>``. Raises `BadInput`: there is no such fault, or it is of none of the
    `arms`, where they are known."""
    found: dict[str, str] = {}
    for part in filter(None, (p.strip() for p in text.split(","))):
        where, _, what = part.partition(":")
        arm, _, place = where.rpartition("/")
        if place not in FAULTS or (arm and place not in OF_AN_ARM):
            raise BadInput("fault", got=part, available=[f"{w}:{x}" for w, all_ in FAULTS.items() for x in all_])
        if arm and arms is not None and arm not in arms:
            raise BadInput(f"arm of fault {part}", got=arm, available=[name for name in arms if name] or ("none",))
        if what not in FAULTS[place] and not (place == "clock" and _is_offset(what)):
            raise BadInput(f"fault {where}", got=what, available=FAULTS[place])
        found[where] = what
    return found


def stamp(what: str | None, now: float) -> float:
    """The time `now` [s] as a faulty clock shows it."""
    if not what:
        return now
    return 0.0 if what == "zero" else now + float(what)


def picture_stamp(what: str | None, at: float) -> float:
    """The stamp of a picture of `at` [s]."""
    return at + _OFF_S.get(what or "", 0.0)


class VectorFault:
    """Spoils a stream of named values."""

    def __init__(self) -> None:
        self._past: deque[Sample] = deque()
        self._held: Sample | None = None
        self._count = 0

    def apply(self, what: str | None, sample: Sample) -> Sample | None:
        """The message in place of `sample`; None: none."""
        names, q, v, at = sample
        self._past.append(sample)
        while len(self._past) > 1 and at - self._past[1][3] >= _RESTAMPED_S:
            self._past.popleft()
        self._count += 1
        if not what:
            self._held = sample
            return sample
        self._held = sample if what not in ("freeze", "stale", "jitter") or self._held is None else self._held
        spoilt: dict[str | None, Sample | None] = {
            "stop": None,
            "freeze": (*self._held[:3], at),
            "stale": self._held,
            "jitter": self._jittering(self._held, at),
            "old": self._ago(_OLD_S, at) if self._count % 2 else sample,
            "late": self._ago(_LATE_S, at),
            "restamped": self._restamped(self._ago(_RESTAMPED_S, at), at),
            "nan": (names, np.array([np.nan, *q[1:]]), v, at),
            "jump": (names, np.array([q[0] + 0.5, *q[1:]]), v, at),
            "turn": (names, np.array([q[0] + math.tau, *q[1:]]), v, at),
            "reorder": (names[::-1], q[::-1], v[::-1], at),
            "missing": (names[1:], q[1:], v[1:], at),
            "zeros": (names, np.zeros_like(q), np.zeros_like(v), at),
        }
        return spoilt.get(what, sample)

    def _jittering(self, sample: Sample, at: float) -> Sample:
        names, q, v, _ = sample
        return names, np.array([*q[:-1], q[-1] + _NOISE * (-1.0) ** self._count]), v, at

    def _restamped(self, sample: Sample, at: float) -> Sample:
        names, q, v, _ = sample
        return names, q + _NOISE * (-1.0) ** (self._count + np.arange(len(q))), v, at

    def _ago(self, seconds: float, at: float) -> Sample:
        """The newest message that is `seconds` old, or the oldest that there is."""
        return next((one for one in reversed(self._past) if at - one[3] >= seconds), self._past[0])


class CameraFault:
    """Spoils the pictures of one camera."""

    def __init__(self) -> None:
        self._held: NDArray[np.uint8] | None = None
        self._count = 0

    def apply(
        self, what: str | None, picture: NDArray[np.uint8], first: NDArray[np.uint8] | None = None
    ) -> NDArray[np.uint8] | None:
        """The picture in place of `picture` (H, W, 3), where the first camera took `first`; None: none."""
        if what == "stop":
            return None
        if what == "same" and first is not None:
            return first
        if what == "black":
            return np.zeros_like(picture)
        if what not in ("freeze", "flicker") or self._held is None:
            self._held = picture
        return self._flickering(self._held) if what == "flicker" else self._held

    def _flickering(self, picture: NDArray[np.uint8]) -> NDArray[np.uint8]:
        self._count += 1
        picture = picture.copy()
        picture.flat[self._count % picture.size] ^= 1
        return picture


def _is_offset(text: str) -> bool:
    try:
        return math.isfinite(float(text))
    except ValueError:
        return False
