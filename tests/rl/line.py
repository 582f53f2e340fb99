"""A line of five places, known by heart: what recorded steps on it are worth, by value iteration of its own."""

from __future__ import annotations

import numpy as np

from robolearn.data.replay import PlayedEpisode

PLACES, GAMMA, LIMIT = 5, 0.9, 8
GOAL, PIT = PLACES, -1  # beside the last place and the first; both end the task


def step(place: int, right: bool) -> tuple[int, float, bool]:
    """(the next place, reward, whether the task is over)."""
    place += 1 if right else -1
    return place, float(place == GOAL), place in (GOAL, PIT)


def optimal() -> tuple[np.ndarray, np.ndarray]:
    """(V* (5,), Q* (5, 2)) of the places and of going left and right."""
    v, q = np.zeros(PLACES), np.zeros((PLACES, 2))
    for _ in range(200):
        for place in range(PLACES):
            for goes in (0, 1):
                after, reward, over = step(place, bool(goes))
                q[place, goes] = reward + (0.0 if over else GAMMA * v[after])
        v = q.max(1)
    return v, q


def seen(place: int) -> list[float]:
    """The place from −1 to 1, with a constant beside it."""
    return [place / 2 - 1, 1.0]


def wandering(episodes: int, seed: int, right: float = 0.5) -> list[PlayedEpisode]:
    """Episodes that go right with the probability `right`; some fall into the pit, some are cut by the clock."""
    rng, found = np.random.default_rng(seed), []
    for _ in range(episodes):
        place, over, places, actions, rewards = int(rng.integers(PLACES)), False, [], [], []
        while not over and len(actions) < LIMIT:
            places.append(seen(place))
            goes = bool(rng.random() < right)
            actions.append(0.7 if goes else -0.7)
            place, reward, over = step(place, goes)
            rewards.append(reward)
        places.append(seen(place))
        helped = np.zeros(len(actions), bool)
        moves, rewarded = np.array(actions, np.float32)[:, None], np.array(rewards, np.float32)
        observation = {"proprio": np.array(places, np.float32)}
        found.append(PlayedEpisode(observation, moves, rewarded, helped, over, place == GOAL))
    return found
