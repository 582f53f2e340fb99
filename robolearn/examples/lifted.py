"""A reward model of one's own: `lift` is solved once the gripper holds something 4 cm wide, 7 cm above the table.

It sees proprioception alone, as an arm in a lab has it: ``hil run --reward robolearn.examples.lifted:Lifted``,
or ``--reward lifted:Lifted`` for a copy of this file in a folder on the ``PYTHONPATH``.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from robolearn.core import Interface, Score, Window

HEIGHT = 0.07  # of the tcp above the table [m]
WIDTH = (0.03, 0.05)  # between the fingers [m]


class Lifted:
    """A `robolearn.core.RewardModel`, made with the interface of the world or arm."""

    def __init__(self, interface: Interface) -> None:
        names = interface.observation["proprio"].names
        self.height, self.width = names.index("tcp_z"), names.index("gripper_width")

    def score(self, windows: Sequence[Window], prompts: Sequence[str]) -> list[Score]:
        return [self.score_one(window) for window in windows]

    def score_one(self, steps: Window) -> Score:
        after = steps.observation["proprio"][-len(steps) :]  # (T, …), what each step led to
        height, width = after[:, self.height], after[:, self.width]
        held = (height > HEIGHT) & (width > WIDTH[0]) & (width < WIDTH[1])
        progress = np.clip(height / 0.1, 0.0, 1.0).astype(np.float32)
        return Score(progress, held.astype(np.float32), held, np.ones(len(steps), np.float32))
