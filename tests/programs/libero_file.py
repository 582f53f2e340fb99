"""Demonstrations in LIBERO's layout, made by robosuite's own controller: the file that a newcomer brings.

python tests/programs/libero_file.py demos.hdf5
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import h5py
import numpy as np

STEPS = 40


def write(path: Path, demonstrations: int = 2) -> None:
    """Random ways of the hand; from the second demonstration on with turns."""
    from sim.adapters import raw_single

    random = np.random.default_rng(0)
    env: Any = raw_single("robosuite:Lift", seed=0)
    with h5py.File(path, "w") as file:
        file.create_group("data").attrs["env_args"] = '{"env_kwargs": {"robots": ["Panda"], "control_freq": 20}}'
        for e in range(demonstrations):
            seen, actions = [env.reset()], []
            turn = min(e, 1) / 2
            way = random.uniform(-0.5, 0.5, (4, 6)).repeat(STEPS // 4, axis=0) * [1, 1, 1, turn, turn, turn]
            for t in range(STEPS):
                actions.append([*way[t], -1.0 if t < STEPS // 2 else 1.0])
                seen.append(env.step(np.array(actions[-1]))[0])
            demo = file["data"].create_group(f"demo_{e}")
            demo["actions"] = np.array(actions)
            demo["rewards"] = demo["dones"] = np.arange(STEPS) == STEPS - 1
            for ours, theirs in {
                "ee_pos": "robot0_eef_pos",
                "ee_ori": "robot0_eef_quat",
                "joint_states": "robot0_joint_pos",
                "gripper_states": "robot0_gripper_qpos",
            }.items():
                demo[f"obs/{ours}"] = np.stack([one[theirs] for one in seen[:STEPS]])
            demo["obs/agentview_rgb"] = np.full((STEPS, 64, 64, 3), 40 * e + 20, np.uint8)
    env.close()


if __name__ == "__main__":
    write(Path(sys.argv[1]))
