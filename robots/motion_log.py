"""Motion of an arm at a fixed rate: commanded and measured, in a file of plain arrays."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np

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
    def seconds(self) -> float:
        """Its length [s]."""
        return len(self.commanded) * self.period

    def part(self, begin: float, end: float) -> MotionLog:
        """The rows from the share `begin` to the share `end` of its length."""
        rows = slice(round(begin * len(self.commanded)), round(end * len(self.commanded)))
        return MotionLog(self.robot, self.period, self.commanded[rows], self.measured[rows])

    def save(self, path: Path) -> Path:
        """Write it to `path` (.npz)."""
        with replacing(path) as made, made.open("wb") as file:
            np.savez_compressed(
                file, robot=np.array(self.robot), period=np.array(self.period), commanded=self.commanded,
                measured=self.measured,
            )  # fmt: skip
        return path


KEYS = ("robot", "period", "commanded", "measured")


def load_log(path: Path, robot: RobotSpec) -> MotionLog:
    """The log in `path`. Raises `BadInput`: it is none, of another arm, without commands, not finite, or too short."""
    if not path.is_file():
        raise BadInput("--log", got=f"{path}, which is not there", expected="an .npz with " + ", ".join(KEYS))
    try:
        with np.load(path, allow_pickle=False) as file:
            found = {key: file[key] for key in file.files}
    except (OSError, ValueError, EOFError) as error:
        raise BadInput(f"--log {path}", got=str(error).partition("\n")[0], expected="an .npz") from None
    for key in KEYS:
        if key not in found:
            raise BadInput(f"--log {path}", got=f"no {key}", expected="arrays " + ", ".join(KEYS))
    log = MotionLog(str(found["robot"]), float(found["period"]), found["commanded"], found["measured"])
    if log.robot != robot.name:
        raise BadInput(f"--log {path}", got=f"the arm {log.robot}", expected=robot.name)
    shape = (len(log.commanded), len(robot.joints))
    for key, values in (("commanded", log.commanded), ("measured", log.measured)):
        if values.shape != shape or not np.isfinite(values).all():
            got = f"{key} of shape {values.shape}" + ("" if np.isfinite(values).all() else ", not finite")
            raise BadInput(f"--log {path}", got=got, expected=f"finite numbers of shape {shape}")
    if not 1e-4 <= log.period <= 0.02 or log.seconds < 5.0:
        got = f"{log.seconds:.3g} s, one row every {1e3 * log.period:.3g} ms"
        raise BadInput(f"--log {path}", got=got, expected="at least 5 s, a row every 0.1 to 20 ms")
    return log
