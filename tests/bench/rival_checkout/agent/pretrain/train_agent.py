"""Imitation that stores the mean action."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np


class Imitation:
    def __init__(self, cfg: Any) -> None:
        # 30 gradient steps are fewer than 50 epochs, a cycle of the learning rate.
        assert cfg.train.n_epochs == 50 and cfg.train.batch_size == 64
        assert cfg.wandb is None and cfg.train_dataset.device == "cpu:0"
        self.cfg = cfg

    def run(self) -> None:
        out = Path(self.cfg.logdir) / "checkpoint"
        out.mkdir(parents=True)
        data = np.load(self.cfg.train_dataset_path)
        assert data["states"].shape[1] == self.cfg.obs_dim and abs(data["states"]).max() <= 1
        with (out / f"state_{self.cfg.train.n_epochs}.pt").open("wb") as file:
            np.save(file, data["actions"].mean(0))
