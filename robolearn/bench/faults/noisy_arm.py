"""The simulated arm with noise in what its sensors send: `python -m robolearn.bench.faults.noisy_arm FLAGS`.

Encoders and cameras of real arms have noise, so that two messages are never the same; those of `emulators.node`, whose
flags these are, have none. A fault that repeats a message repeats its noise, too.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from robolearn.bench.emulators.node import main as run
from robolearn.bench.emulators.node import make_world
from robolearn.core.machine import leave
from sim.realtime import RealtimeWorld

NOISE_RAD = 5e-5  # standard deviation of encoders
NOISE = 2  # of 255: of pictures, at most


class NoisyWorld(RealtimeWorld):
    """The embedded world as noisy sensors see it."""

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        # two: pictures are taken in a thread of their own
        self._encoders, self._cells = np.random.default_rng(0), np.random.default_rng(1)

    def joint_state(self, arm: int = 0) -> tuple[tuple[str, ...], NDArray, NDArray]:
        """See `RealtimeWorld.joint_state`."""
        names, q, v = super().joint_state(arm)
        n = len(self.robot.parts[arm].robot.joints)
        q[:n] += NOISE_RAD * self._encoders.standard_normal(n)
        return names, q, v

    def image(self, camera: str) -> NDArray[np.uint8]:
        """See `RealtimeWorld.image`."""
        picture = super().image(camera).astype(np.int16)
        picture += self._cells.integers(-NOISE, NOISE + 1, picture.shape, dtype=np.int16)
        return np.clip(picture, 0, 255).astype(np.uint8)


def main(argv: Sequence[str] | None = None) -> int:
    """Spin the node; the exit code."""
    return run(argv, partial(make_world, kind=NoisyWorld))


if __name__ == "__main__":
    leave(main(sys.argv[1:]))
