"""Demonstrations of robosuite's Lift by a short script, through the same world that the policy will act in.

``python -m robolearn.examples.robosuite_demos`` records 40 episodes in data/robosuite-lift.
"""

from pathlib import Path

import numpy as np

from robolearn.data import EpisodeWriter
from sim.registry import make_env

WORLDS = 4


def record(folder: Path, episodes: int, seed: int = 0) -> None:
    """Record `episodes` demonstrations, rounded up to a multiple of `WORLDS`, as a new data set in `folder`."""
    env, rng = make_env("robosuite:Lift", num_envs=WORLDS), np.random.default_rng(seed)
    with EpisodeWriter(folder, env.interface) as writer:
        while writer.episodes < episodes:
            observation, _ = env.reset(seed=int(rng.integers(2**31)))
            steps, active = [[] for _ in range(WORLDS)], np.ones(WORLDS, bool)
            closed = np.zeros(WORLDS, int)  # for how many steps the gripper has been closing
            aim = rng.normal(0.0, 0.008, (WORLDS, 2))  # [m] each episode misjudges the cube
            while active.any():
                to_cube = observation["objects"][:, 7:10].copy()  # cube − gripper [m]
                to_cube[:, :2] += aim
                above = np.linalg.norm(to_cube[:, :2], axis=1) > 0.02
                to_cube[:, 2] += np.where(above & (closed == 0), 0.06, 0.0)
                closed += ~above & (np.abs(to_cube[:, 2]) < 0.012)
                move = np.where((closed > 4)[:, None], [0.0, 0.0, 0.05], to_cube)  # up once it is gripped
                action = np.zeros((WORLDS, 7), np.float32)
                action[:, :3] = np.clip(move / 0.05, -1, 1) + 0.05 * rng.standard_normal((WORLDS, 3))
                action[:, 6] = np.where(closed > 0, 1.0, -1.0)
                action = np.clip(action, -1, 1)
                before = {key: value.copy() for key, value in observation.items()}
                observation, reward, terminated, truncated, info = env.step(action, active)
                for w in np.flatnonzero(active):
                    steps[w].append(({key: value[w] for key, value in before.items()}, action[w], reward[w]))
                ended = active & (terminated | truncated)
                for w in np.flatnonzero(ended):
                    for step in steps[w]:
                        writer.add(*step)
                    writer.end(
                        success=bool(info["success"][w]),
                        terminated=bool(terminated[w]),
                        truncated=bool(truncated[w]),
                        task="lift the cube",
                    )
                active &= ~ended
    env.close()


if __name__ == "__main__":
    record(Path("data/robosuite-lift"), episodes=40)
    print("data/robosuite-lift: 40 demonstrations")
