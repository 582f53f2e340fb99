"""The film of the operator: starts that a policy fails alone, with an operator who takes over and hands back, and after
the policy has learned from that. `python tests/programs/handover_film.py runs/peg-bc runs/peg-hil
robolearn/hil/handover.webp`, after the first four commands of the page on the human in the loop.

The starts are the first of one seed that the policy fails alone and solves with the operator; nothing else is chosen.
"""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
from first_page_film import HZ, named
from numpy.typing import NDArray
from PIL import Image

from robolearn import make_env, open_policy
from robolearn.core import Env, Observation, Policy
from robolearn.hil.agent import Operator
from robolearn.hil.evaluation import HelpedAgent
from robolearn.rollout import Decision, Engine, Episodes
from sim.experts import make_operator

TASK, WORLDS, SEED, STARTS = "peg_insert_tight", 32, 1000, 2
ABOVE, LEFT, EDGE = 25, 110, 260  # the part of a picture that has arm and peg [px]
ORANGE = (200, 100, 0)


class Nobody:
    """An operator who never takes over."""

    def begin(self, worlds: NDArray[np.bool_]) -> None:
        """Nothing to do."""

    def steer(self) -> None:
        """Never asked."""

    def command(self, observation: Observation) -> tuple[NDArray[np.bool_], NDArray[np.float32]]:
        return np.zeros(WORLDS, np.bool_), np.zeros((WORLDS, 7), np.float32)


class FilmedAgent(HelpedAgent):
    """Keeps a picture of each second step of some worlds; the operator's have another bar."""

    def __init__(self, env: Env, policy: Policy, operator: Operator, worlds: list[int], name: str) -> None:
        super().__init__(policy, operator, WORLDS)
        self._env, self._name, self._step = env, name, 0
        self.frames: dict[int, list[NDArray[np.uint8]]] = {world: [] for world in worlds}

    def decide(self, observation: Observation, worlds: NDArray[np.bool_]) -> Decision:
        decision = super().decide(observation, worlds)
        for world, frames in self.frames.items():
            if worlds[world] and self._step % (20 // HZ) == 0 and (picture := self._env.frame(world)) is not None:
                part = picture[ABOVE : ABOVE + EDGE, LEFT : LEFT + EDGE]
                steers = bool(decision.aux["intervention"][world])
                frames.append(named(part, "the operator steers", ORANGE) if steers else named(part, self._name))
        self._step += 1
        return decision


def played(
    run: Path, worlds: list[int], name: str, *, helped: bool = False
) -> tuple[list[int], dict[int, list[NDArray[np.uint8]]]]:
    """One episode in each world: those that failed, and the films of `worlds`, which end with their outcome."""
    env, policy = make_env(TASK, WORLDS), open_policy(run)
    operator = make_operator(TASK, env.interface, WORLDS, SEED) if helped else Nobody()
    agent, engine, failed = FilmedAgent(env, policy, operator, worlds, name), Engine(env), list[int]()
    engine.reset(SEED)
    policy.reset(SEED)
    for turn in engine.turns(agent, Episodes(np.ones(WORLDS, np.int64))):
        ended = turn.worlds & turn.ended
        failed += np.flatnonzero(ended & ~turn.solved).tolist()
        for world in set(worlds) & set(np.flatnonzero(ended).tolist()):
            seconds = (turn.elapsed + turn.steps)[world] / 20
            outcome = f"solved in {seconds:.1f} s" if turn.solved[world] else "not solved"
            agent.frames[world].append(named(agent.frames[world][-1][:EDGE], f"{name}: {outcome}"))
    return failed, agent.frames


def main(before: Path, after: Path, out: Path) -> None:
    alone, helped = set(played(before, [], "")[0]), set(played(before, [], "", helped=True)[0])
    starts = sorted(alone - helped)[:STARTS]
    films = [
        played(before, starts, "imitation")[1],
        played(before, starts, "watched", helped=True)[1],
        played(after, starts, "after learning")[1],
    ]
    rows = []
    for start in starts:
        most = max(len(film[start]) for film in films) + HZ
        held = [film[start] + film[start][-1:] * (most - len(film[start])) for film in films]
        rows += [np.hstack(pictures) for pictures in zip(*held, strict=True)]
    made = [Image.fromarray(row) for row in rows]
    made[0].save(out, save_all=True, append_images=made[1:], duration=1000 // HZ, loop=0, quality=60, method=6)
    print(f"{out}: {len(rows)} pictures, {out.stat().st_size / 1e6:.2f} MB, worlds {starts} of seed {SEED}")
    print(f"of {WORLDS} starts {len(alone)} fail alone, {len(helped)} with the operator")


if __name__ == "__main__":
    main(*map(Path, sys.argv[1:4]))
