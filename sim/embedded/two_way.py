"""Worlds that nobody resets: a task and its way back take turns, and each episode begins where the last one ended.

    turn_{j+1} = back where turn_j = there, there where turn_j = back           whether or not the episode was solved

After an episode that was not solved the arm goes home by itself, as `--reset motion` has it on a real one: it opens
the gripper, rises and returns, which is simulated, counts as no step of anybody's and leaves things where they are.

Only a person puts things back: where one is out of reach (`Task.failure`), and where `PATIENCE` episodes in a row were
not solved. Those resets are counted (`helped`). What `MujocoWorlds` draws in each episode (start, friction, mass,
delay, looks) is drawn when a person has reset, and stays; the place of each way back is drawn anew.
"""

from __future__ import annotations

from dataclasses import dataclass, field, fields
from typing import Any

import numpy as np
from numpy.typing import NDArray

from robots import RobotSpec
from robots.ik import solve
from sim.embedded.task import Array, Start, State, Task
from sim.embedded.world import MujocoWorlds
from sim.tasks.ways_back import PLACE, TCP, WayBack, draw_place

PATIENCE = 6  # episodes in a row that a person watches fail
RISE_M = 0.08  # of the tcp on its way home
OPENING, RISING, RETURNING = 8, 12, 30  # control steps of the parts of that way


@dataclass(frozen=True)
class Alternating(Task):
    """A task and its way back in one scene; `back` (N,) says in which worlds it is the way back's turn."""

    there: Task = field(kw_only=True)
    back_again: WayBack = field(kw_only=True)
    back: NDArray[np.bool_] = field(kw_only=True)

    @classmethod
    def of(cls, there: Task, back_again: WayBack, num_envs: int) -> Alternating:
        """Both, for N worlds in which it is the first one's turn."""
        own = {one.name: getattr(there, one.name) for one in fields(Task)}
        own |= {name: getattr(back_again, name) for name in ("bodies", "target_names")}
        own["max_episode_steps"] = max(there.max_episode_steps, back_again.max_episode_steps)
        return cls(**own, there=there, back_again=back_again, back=np.zeros(num_envs, np.bool_))

    def build(self, spec: Any) -> None:
        self.back_again.build(spec)

    def start(self, rng: np.random.Generator) -> Any:
        return self.there.start(rng)

    def observe(self, state: State) -> Array:
        return self.there.observe(state)

    def target(self, state: State) -> Array:
        return self.back_again.target(state)

    def success(self, state: State) -> NDArray[np.bool_]:
        return np.where(self.back, self.back_again.success(state), self.there.success(state))

    def failure(self, state: State) -> NDArray[np.bool_]:
        return self.there.failure(state)

    def progress(self, state: State) -> Array:
        return np.where(self.back, self.back_again.progress(state), self.there.progress(state))


class TwoWayWorlds(MujocoWorlds):
    """See the module. `back_again`, `there`: a way back and its task; `options`: those of `MujocoWorlds`.

    Attributes:
      helped: resets by a person so far, in all worlds; those that begin the first episodes do not count.
    """

    world_task: Alternating

    def __init__(self, back_again: WayBack, there: Task, num_envs: int, **options: Any) -> None:
        super().__init__(Alternating.of(there, back_again, num_envs), num_envs, **options)
        self.prompts = there.prompt, back_again.prompt
        self.helped, self._judged = 0, False
        self._called = np.zeros(num_envs, np.bool_)  # the present episode is called solved from outside
        self._home_q = self.physics.posture([Start(TCP.mean(1))])[0][0]
        self._placed = np.full(num_envs, -1)  # number of the episode in which a person put everything in its place
        self._unsolved = np.zeros(num_envs, np.int64)  # episodes in a row

    @property
    def back(self) -> NDArray[np.bool_]:
        """(N,) true where the present episode is one of the way back, a copy."""
        return self.world_task.back.copy()

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[dict[str, NDArray], dict[str, Any]]:
        """A person puts everything in its place, in every world; see `MujocoWorlds.reset`."""
        self._unsolved[:] = 0
        return super().reset(seed=seed, options=options)

    def judge_outside(self) -> None:
        """Episodes are solved where `hand_over` says so from now on; the success of tasks is shown, and ends none."""
        self._judged = True

    def hand_over(self, ids: NDArray[np.int64]) -> dict[str, NDArray]:
        """End the episodes of the worlds `ids` (M,) as solved; returns the observation of all, with their next."""
        self._called[ids] = True
        self._observation = self._begin_again(ids, self._observation)
        return self._observation

    def _ends(self, success: NDArray[np.bool_]) -> NDArray[np.bool_]:
        return np.zeros_like(success) if self._judged else success

    def _begin(self, ids: NDArray[np.int64]) -> None:
        """A person puts everything in its place in the worlds `ids`."""
        self._placed[ids] = self._episode[ids] + 1
        super()._begin(ids)
        self.world_task.back[ids] = False
        self._unsolved[ids] = 0
        self._put_places(ids)

    def _begin_again(self, ids: NDArray[np.int64], observation: dict[str, NDArray]) -> dict[str, NDArray]:
        """The next episodes in the worlds `ids` (M,), where nothing but the clock begins anew."""
        solved = (self._called if self._judged else self.world_task.success(self.truth))[ids]
        lost = self.world_task.failure(self.truth)[ids]
        self._called[ids] = False
        self._unsolved[ids] = np.where(solved, 0, self._unsolved[ids] + 1)
        lost |= self._unsolved[ids] >= PATIENCE
        going = ids[~lost]
        self._elapsed[going] = 0
        self._go_home(ids[~lost & ~solved])
        self._episode[going] += 1
        self.world_task.back[going] ^= True
        self._put_places(going)
        if lost.any():
            self.helped += int(lost.sum())
            self._begin(ids[lost])
        return self._seen_anew(ids, observation)

    def _go_home(self, rows: NDArray[np.int64]) -> None:
        """The arms of the worlds `rows` (M,) open their grippers, rise, and go to where the task begins."""
        if not len(rows):
            return
        robot = self.robot
        assert isinstance(robot, RobotSpec)  # no way back is of two arms
        open_width = np.full(len(rows), robot.gripper.max_width)
        q = self._set_q[rows]
        pos, rot = robot.chain.forward(q)
        risen = solve(robot.chain, q, pos + np.array([0.0, 0.0, RISE_M]), rot, rest=np.array(robot.home))
        for goal, steps in ((q, OPENING), (risen, RISING), (np.tile(self._home_q, (len(rows), 1)), RETURNING)):
            for _ in range(steps):
                self._move(rows, goal, open_width)
        self.physics.look(rows)

    def _report_broken(self, broken: NDArray[np.bool_]) -> None:
        super()._report_broken(broken)
        self._unsolved[broken] = PATIENCE

    def _put_places(self, ids: NDArray[np.int64]) -> None:
        """Draw the places of the present episodes of the worlds `ids`."""
        task = self.world_task.back_again
        for w in ids:
            rng = np.random.default_rng([self._seed, int(self._ids[w]), int(self._episode[w]), 1])
            self.physics.put(PLACE, int(w), draw_place(rng, task.start_range, task.starts))

    @property
    def _drawn(self) -> NDArray[np.int64]:
        return self._placed

    def snapshot(self) -> dict[str, NDArray]:
        """See `MujocoWorlds.snapshot`."""
        own = {"back": self.back, "placed": self._placed.copy(), "unsolved": self._unsolved.copy()}
        return super().snapshot() | own | {"helped": np.array([self.helped])}

    def restore(self, snapshot: dict[str, NDArray]) -> dict[str, NDArray]:
        """See `MujocoWorlds.restore`."""
        self.world_task.back[:] = snapshot["back"]
        self._placed, self._unsolved = snapshot["placed"].copy(), snapshot["unsolved"].copy()
        self.helped = int(snapshot["helped"][0])
        return super().restore(snapshot)
