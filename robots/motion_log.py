"""Motion of an arm at a fixed rate: commanded and measured, in a file of plain arrays."""

from __future__ import annotations

import zipfile
import zlib
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from robolearn.core.errors import BadInput
from robolearn.io.atomic import replacing
from robots.chain import Array
from robots.spec import RobotSpec


@dataclass(frozen=True)
class MotionLog:
    """Set-points of an arm and what its sensors said, every `period`.

    Attributes:
      robot: its name.
      period: between two rows [s].
      commanded: (T, n) set-points [rad].
      measured: (T, n) positions one period after them [rad].
    """

    robot: str
    period: float
    commanded: Array
    measured: Array

    @property
    def unsure_s(self) -> float:
        """Standard deviation of the moment of its set-points [s]."""
        return 0.0

    @property
    def seconds(self) -> float:
        """Its length [s]."""
        return len(self.commanded) * self.period

    def part(self, begin: float, end: float) -> MotionLog:
        """The rows from the share `begin` to the share `end` of its length."""
        rows = slice(round(begin * len(self.commanded)), round(end * len(self.commanded)))
        return MotionLog(self.robot, self.period, self.commanded[rows], self.measured[rows])

    def seen(self, positions: Array) -> Array:
        """(…, T, n) → (…, K, n): of positions one period after each set-point those at the moments of `measured`."""
        return positions

    def after(self, seconds: float) -> slice:
        """The rows of `measured` from so long after the beginning on."""
        return slice(round(seconds / self.period), None)

    def save(self, path: Path) -> Path:
        """Write it to `path` (.npz)."""
        with replacing(path) as made, made.open("wb") as file:
            np.savez_compressed(
                file, robot=np.array(self.robot), period=np.array(self.period), commanded=self.commanded,
                measured=self.measured,
            )  # fmt: skip
        return path


@dataclass(frozen=True)
class SparseLog(MotionLog):
    """A log whose joints were kept more seldom than set-points were sent, as the rows of a data set are.

    Attributes:
      measured: (K, n) positions [rad].
      at: (K,) when, since the first set-point, rising [s]; from one period on to the end of the log.
    """

    at: Array

    @property
    def unsure_s(self) -> float:
        """Of a moment anywhere within a period."""
        return self.period / np.sqrt(12.0)

    def seen(self, positions: Array) -> Array:
        """See `MotionLog.seen`; on a line between two."""
        place = np.clip(self.at / self.period - 1.0, 0.0, positions.shape[-2] - 1.0)
        before = np.minimum(place.astype(np.int64), positions.shape[-2] - 2)
        share = (place - before)[:, None]
        return (1.0 - share) * positions[..., before, :] + share * positions[..., before + 1, :]

    def after(self, seconds: float) -> slice:
        """See `MotionLog.after`."""
        return slice(int(np.searchsorted(self.at, seconds)), None)


KEYS = ("robot", "period", "commanded", "measured")
FORM = "an .npz with " + ", ".join(KEYS)
OUTSIDE = 0.5  # beyond a joint's limits, where no arm is [rad]


def load_log(path: Path, robot: RobotSpec) -> MotionLog:
    """The log in `path`. Raises `BadInput`: it is none, of another arm, without commands, not finite, far outside the
    joints' limits, or too short."""
    if not path.is_file():
        got = f"{path}, which is {'a folder' if path.is_dir() else 'not there'}"
        raise BadInput("--log", got=got, expected=FORM)
    found, what = _arrays(path), f"--log {path}"
    for key in KEYS:
        if key not in found:
            raise BadInput(what, got=f"no {key}", expected="arrays " + ", ".join(KEYS))
    period, name = found["period"], str(found["robot"])
    if period.shape or period.dtype.kind not in "iuf":
        raise BadInput(what, got=f"period of shape {period.shape}, type {period.dtype}", expected="one number [s]")
    if name != robot.name:
        raise BadInput(what, got=f"the arm {name}", expected=robot.name)
    for key in ("commanded", "measured"):
        _check_joints(found[key], key, robot, what)
    if len(found["commanded"]) != len(found["measured"]):
        got = f"{len(found['commanded'])} rows of commanded, {len(found['measured'])} of measured"
        raise BadInput(what, got=got, expected="as many of both")
    joints = (found[key].astype(np.float64) for key in ("commanded", "measured"))
    log = MotionLog(name, float(period), *joints)
    if not 1e-4 <= log.period <= 0.02 or log.seconds < 5.0:
        got = f"{log.seconds:.3g} s, one row every {1e3 * log.period:.3g} ms"
        raise BadInput(what, got=got, expected="at least 5 s, a row every 0.1 to 20 ms")
    return log


def _arrays(path: Path) -> dict[str, NDArray]:
    """Those of `KEYS` that are in the file."""
    if not zipfile.is_zipfile(path):
        raise BadInput(f"--log {path}", got="another kind of file", expected=FORM)
    try:
        with np.load(path, allow_pickle=False) as file:
            return {key: np.asarray(file[key]) for key in KEYS if key in file.files}
    except (OSError, ValueError, EOFError, zipfile.BadZipFile, zlib.error):  # Python objects, or a damaged file
        raise BadInput(f"--log {path}", got="arrays that cannot be read", expected=FORM) from None


def _check_joints(values: NDArray, key: str, robot: RobotSpec, what: str) -> None:
    n = len(robot.joints)
    if values.dtype.kind not in "iuf":
        raise BadInput(what, got=f"{key} of type {values.dtype}", expected="numbers [rad]")
    if values.ndim != 2 or values.shape[1] != n or not np.isfinite(values).all():
        got = f"{key} of shape {values.shape}" + ("" if np.isfinite(values).all() else ", not finite")
        raise BadInput(what, got=got, expected=f"finite numbers of shape (T, {n})")
    if not len(values):
        return
    outside = np.maximum(robot.lower - values, values - robot.upper)
    row, joint = np.unravel_index(outside.argmax(), outside.shape)
    if outside[row, joint] > OUTSIDE:
        got = f"{key} {values[row, joint]:.4g} of {robot.joints[joint]}"
        expected = f"{robot.lower[joint]:.4g} to {robot.upper[joint]:.4g} rad"
        raise BadInput(what, got=got, expected=expected, hint="The unit of its joints is radians")
