"""An operator without a human: watches a policy, takes over when it goes wrong, and hands back.

What a person does at the console, as a script, so that human-in-the-loop learning can be measured. Before each step it
asks the task's experts, one for each strategy, where they would go. Against that it holds what the arm did:

    p = max over strategies of  Δx · w / ‖w‖²        Δx the tcp's last displacement, w the one that was wanted

p is 1 where the arm does what an expert would, 0 where it stands, negative where it leaves the corridor. Steps without
progress count one, steps the wrong way more, good ones take two off. Where the sum stays above `Patience.limit` for
`Patience.reaction` steps, the operator steers with a trembling hand, and lets go after a number of steps that is drawn
anew each time. It sees what an operator sees: the scene, never the policy's intentions.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from robolearn.core import BadInput, Interface, Observation
from robots.control import DELTA_POS
from sim.experts.waypoints import Array, Quality, Script, ScriptedExpert

WANTED = 0.15  # of a full deflection: an expert who moves less is busy with the gripper, and nothing can be compared
SLOW, WRONG = 0.1, -0.1  # p below which a step made no progress, and below which it went the wrong way


@dataclass(frozen=True)
class Patience:
    """When the operator takes over and hands back."""

    limit: float = 9.0  # how much may count against the policy
    against: float = 3.0  # what a step the wrong way counts; one without progress counts 1
    reaction: int = 4  # control steps from having seen enough to the hand on the device; 4 are 0.2 s
    hold: tuple[int, int] = (20, 35)  # shortest and longest intervention [control steps]
    tremor: float = 0.05  # standard deviation of the noise on each action component (full deflection = 1)

    def __post_init__(self) -> None:
        if not (self.limit > 0 and self.against >= 1 and self.reaction >= 0 and self.tremor >= 0):
            raise BadInput("operator: limit, against, reaction, tremor", expected="positive numbers, against ≥ 1")
        if not 1 <= self.hold[0] <= self.hold[1]:
            raise BadInput("operator: hold", got=self.hold, expected="1 ≤ shortest ≤ longest")


PATIENT = Patience()  # of tasks in which nothing is lost by waiting


class ScriptedOperator:
    """Watches N worlds, and steers some of them for a while.

    Args:
      interface: of the world; the action must be ``tcp_delta``.
      seed: world w's choices depend on (seed, w) and what it sees.

    Attributes:
      takeovers: (N,) interventions begun so far.
    """

    def __init__(
        self, script: Script, interface: Interface, num_envs: int, seed: int, patience: Patience | None = None
    ) -> None:
        self.patience = Patience() if patience is None else patience
        quality = Quality(noise=self.patience.tremor, strategies=script.strategies)
        self._experts = [
            ScriptedExpert(script, interface, num_envs, quality, seed * 1_000_003 + k) for k in range(script.strategies)
        ]
        self._rngs = [np.random.default_rng([seed, w, 3]) for w in range(num_envs)]
        self._against, self._reacting, self._holding, self._which = np.zeros((4, num_envs))
        self._last = np.full((num_envs, 3), np.nan)
        self._wanted = np.zeros((len(self._experts), num_envs, 3))
        self.takeovers = np.zeros(num_envs, np.int64)
        self.begin(np.ones(num_envs, np.bool_))

    def begin(self, worlds: NDArray[np.bool_]) -> None:
        """A new episode begins in the worlds (N,) that are true; nobody steers there."""
        for counter in (self._against, self._reacting, self._holding):
            counter[worlds] = 0
        self._last[worlds] = np.nan
        for expert in self._experts:
            expert.reset(worlds)

    def steer(self) -> None:
        """Steer in every world until its episode ends, by a strategy that is drawn anew."""
        self._holding[:] = np.inf
        self._which[:] = [rng.integers(len(self._experts)) for rng in self._rngs]

    def command(self, observation: Observation) -> tuple[NDArray[np.bool_], NDArray[np.float32]]:
        """Before each control step: (N,) where the operator steers now, and (N, 7) with what."""
        watching = self._holding == 0
        for k, expert in enumerate(self._experts):
            expert.resume(observation, watching, k)  # one who steers goes on with the phase that was begun
        pos, rot = self._experts[0].tcp(observation)
        actions = np.stack([expert.motion(observation) for expert in self._experts])
        progress = self._progress(pos)
        self._judge(progress.max(0), watching)
        seen_enough = watching & (self._against >= self.patience.limit)
        self._reacting = np.where(seen_enough, self._reacting + 1, 0)
        for w in np.flatnonzero(seen_enough & (self._reacting > self.patience.reaction)):
            self._holding[w] = self._rngs[w].integers(self.patience.hold[0], self.patience.hold[1] + 1)
            self._which[w] = progress[:, w].argmax()
            self._reacting[w] = self._against[w] = 0
            self.takeovers[w] += 1
        steering = self._holding > 0
        self._holding = np.maximum(self._holding - 1, 0)
        self._last = pos.copy()
        self._wanted = DELTA_POS * np.einsum("nij,knj->kni", rot, actions[:, :, :3].astype(np.float64))
        chosen = actions[self._which.astype(np.int64), np.arange(len(steering))]
        return steering, self._experts[0].in_world(observation, chosen)

    def _progress(self, pos: Array) -> Array:
        """(strategies, N) p; 1 where nothing can be compared."""
        moved = pos - self._last
        length = np.linalg.norm(self._wanted, axis=-1)
        comparable = (length > WANTED * DELTA_POS) & np.isfinite(moved[:, 0])
        p = np.einsum("ni,kni->kn", np.nan_to_num(moved), self._wanted) / np.maximum(length, 1e-9) ** 2
        return np.where(comparable, p, 1.0)

    def _judge(self, progress: Array, watching: NDArray[np.bool_]) -> None:
        worse = np.where(progress < WRONG, self.patience.against, np.where(progress < SLOW, 1.0, -2.0))
        self._against = np.where(watching, np.maximum(self._against + worse, 0.0), 0.0)
