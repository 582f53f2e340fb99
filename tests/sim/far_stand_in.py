"""A family of worlds of another maker, as a file of the far side: a point that its expert brings to a place."""

from __future__ import annotations

import numpy as np
from robolearn_far.errors import BadInput
from robolearn_far.facts import AdapterEnv, Facts, Spec


def names():
    return ["near", "wide"]


def build(task, cameras=(), image_size=84):
    if task.partition(":")[2] not in names():
        raise BadInput("stand-in task", got=task.partition(":")[2], available=names())
    return Point(task)


class Point(AdapterEnv):
    """Success within 0.1 of (0.5, 0); a step moves by a tenth of the action. The expert begins slowly."""

    def __init__(self, task):
        specs = {"proprio": Spec((2,), names=("x", "y"))}
        super().__init__(
            Facts(
                specs,
                2,
                10.0,
                task,
                "go there",
                40,
                "point",
                reports_success=True,
                demonstrates=True,
                says=("it moves",),
            )
        )

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.steps, self.place = 0, self.np_random.uniform(-0.5, 0.0, 2)
        return {"proprio": self.place.astype(np.float32)}, {}

    def step(self, action):
        self.steps += 1
        self.place = self.place + 0.1 * np.asarray(action, np.float64)
        success = bool(np.linalg.norm(self.place - [0.5, 0.0]) < 0.1)
        late = self.steps >= 40 and not success
        return {"proprio": self.place.astype(np.float32)}, float(success), success, late, {"success": success}

    def demonstrate(self):
        """Too far for one step is more than 1 can say: it is clipped."""
        return (0.3 if self.steps == 0 else 5.0) * (np.array([0.5, 0.0]) - self.place) / 0.1
