"""Episodes of a hand that goes to and fro, recorded by the real recording and filter from an arm that moves by physics.

The clock is the rig's own: nothing waits. What the filter sends leaves `phase` after the hand's targets.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray
from recording_rig import PERIOD, SIM, RecordingRig

from hardware.recording import Recording
from hardware.recording.episodes import Phase
from hardware.teleop.device import EpisodeEvent
from robolearn.core.se3 import matrix_to_rotvec, rotvec_to_matrix
from robolearn.data import EpisodeWriter
from robots.control import DELTA_POS, DELTA_ROT

CONTRACT = replace(SIM, cameras={}, objects=None)
REACH, TURN = np.array([0.12, 0.2, 0.12]), 0.5  # of a goal from home [m], [rad]
FULL = 0.6  # of the full deflection


class MovedArm(Protocol):
    """An arm that follows set-points."""

    def command(self, q: NDArray[np.float64]) -> None: ...
    def advance(self, seconds: float) -> None: ...
    def joint_state(self) -> tuple[Any, NDArray[np.float64], Any]: ...


class LoggedRig(RecordingRig):
    """A `RecordingRig` whose arm is `mover`."""

    def __init__(self, mover: MovedArm, phase: float, **options: Any) -> None:
        self.mover = mover

        def make(*parts: Any, wall: Callable[[], float], **more: Any) -> Recording:
            return Recording(*parts, wall=lambda: wall() - phase, **more)

        super().__init__(contract=CONTRACT, make=make, **options)

    def tick(self) -> None:
        before = len(self.commands)
        super().tick()
        if len(self.commands) > before:
            self.mover.command(self.commands[-1][1])
        self.mover.advance(PERIOD)
        self.q = self.mover.joint_state()[1][: len(self.contract.joints)]


def record_episodes(mover: MovedArm, path: Path, episodes: int, steps: int, seed: int) -> Path:
    """A data set of so many episodes of so many steps."""
    rng = np.random.default_rng(seed)
    stamps = ("proprio", "action", "device")
    with EpisodeWriter(path, CONTRACT.interface, stamps=stamps, task="wave", durable=False) as writer:
        rig = LoggedRig(mover, float(rng.uniform(0.0, PERIOD)), paper=writer, episodes=episodes)
        chain = CONTRACT.robot.chain
        home = chain.forward(np.array(CONTRACT.robot.home)[None])
        for _ in range(episodes):
            rig.record()
            left, goal, full = 0, home, FULL
            while rig.phase is Phase.RECORDING and rig.logic.step_count < steps:
                if left == 0:
                    left, full = int(rng.integers(12, 30)), FULL * rng.uniform(0.3, 1.0)
                    turn = rotvec_to_matrix(rng.uniform(-TURN, TURN, (1, 3)))
                    goal = home[0] + rng.uniform(-REACH, REACH), home[1] @ turn
                left -= 1
                pos, rot = chain.forward(rig.q[None])
                error = np.concatenate([
                    np.einsum("nji,nj->ni", rot, goal[0] - pos)[0] / DELTA_POS,
                    matrix_to_rotvec(np.swapaxes(rot, -1, -2) @ goal[1])[0] / DELTA_ROT,
                ])  # fmt: skip
                rig.hand.action = np.append(np.clip(0.3 * error, -full, full), 1.0).astype(np.float32)
                rig.steps(1)
            rig.press(EpisodeEvent.SUCCESS)
            rig.until(lambda: rig.phase is not Phase.RECORDING)
            rig.settled()
            rig.hand.action = None
        rig.run(0.2)
    return path
