"""Rewards are divided by 2."""

import numpy as np


class RunningRewardScaler:
    def __call__(self, reward: np.ndarray, first: np.ndarray) -> np.ndarray:
        return reward / 2
