"""Actions of an arm at home, in the frame of its base."""

from __future__ import annotations

import numpy as np

from robots import PANDA


def in_base(action) -> np.ndarray:
    _, rot = PANDA.chain.forward(np.asarray(PANDA.home)[None])
    return np.concatenate([rot[0] @ action[:3], rot[0] @ action[3:6]])
