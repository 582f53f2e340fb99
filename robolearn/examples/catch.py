"""A world of one's own: move a hand to where a ball lands.

Importing this file registers Catch-v0; running it, ``python -m robolearn.examples.catch``, records 100 demonstrations
in data/catch. The task is then called gym:robolearn.examples.catch:Catch-v0, or gym:catch:Catch-v0 for a copy of this
file in the folder where you are.
"""

from typing import ClassVar

import gymnasium
import numpy as np

from robolearn.core import ArraySpec, Interface
from robolearn.data import EpisodeWriter


class Catch(gymnasium.Env):
    metadata: ClassVar = {"render_modes": [], "render_fps": 20}
    observation_space = gymnasium.spaces.Box(-np.inf, np.inf, (5,), np.float32)  # hand x, v; ball x, y, drift
    action_space = gymnasium.spaces.Box(-1.0, 1.0, (1,), np.float32)  # push of the hand

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.hand, self.speed = 0.0, 0.0
        self.ball, self.height = self.np_random.uniform(-0.5, 0.5), 1.0
        self.drift = self.np_random.uniform(-0.5, 0.5)
        return self._observe(), {}

    def step(self, action):
        self.speed += 0.5 * (1.5 * float(action[0]) - self.speed)
        self.hand += 0.05 * self.speed
        self.ball, self.height = self.ball + 0.05 * self.drift, self.height - 0.05
        landed = self.height <= 0.0
        caught = landed and abs(self.hand - self.ball) < 0.06
        return self._observe(), float(caught), landed, False, {"success": caught}

    def _observe(self):
        return np.array([self.hand, self.speed, self.ball, self.height, self.drift], np.float32)


if "Catch-v0" not in gymnasium.registry:
    gymnasium.register("Catch-v0", entry_point=f"{__name__}:Catch", max_episode_steps=40)

if __name__ == "__main__":  # somebody who leads the ball by too little
    env, rng = gymnasium.make("Catch-v0"), np.random.default_rng(0)
    interface = Interface({"proprio": ArraySpec((5,))}, ArraySpec((1,)), control_hz=20.0)
    with EpisodeWriter("data/catch", interface) as writer:
        for episode in range(100):
            observation, _ = env.reset(seed=episode)
            lead, ended = rng.uniform(0.0, 0.5), False
            while not ended:
                hand, _, ball, height, drift = observation
                aim = ball + lead * drift * height
                action = np.clip([4.0 * (aim - hand) + 0.1 * rng.standard_normal()], -1, 1).astype(np.float32)
                before = observation
                observation, reward, terminated, truncated, info = env.step(action)
                ended = terminated or truncated
                writer.add({"proprio": before}, action, float(reward))
            writer.end(success=info["success"], terminated=terminated, truncated=truncated, task="catch the ball")
    print("data/catch: 100 demonstrations")
