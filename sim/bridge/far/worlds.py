"""Several worlds in one process, and what they write."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray

from .errors import describe
from .facts import AdapterEnv, Features, WorldArrays
from .world import World


class WorldFailure(Exception):
    """The world of this number raised the error that this one is raised from."""

    def __init__(self, world: int, error: BaseException) -> None:
        super().__init__(describe(error))
        self.world, self.error = world, error


class Worlds:
    """Worlds `first`, `first` + 1, … of a vector env, which write what they do into a `WorldArrays` of that many rows.

    `notes` collects (world, text): what the user should know. Each method raises `WorldFailure`.
    """

    def __init__(self, envs: Sequence[AdapterEnv], first: int = 0) -> None:
        self._worlds = [World(env, first + i) for i, env in enumerate(envs)]
        self.notes: list[tuple[int, str]] = []

    def reset(self, block: WorldArrays, *, begin: bool) -> None:
        """Next episodes of the active worlds, from the starts in `block` where `begin`."""

        def start(i: int, world: World) -> None:
            numbers = (int(number) for number in block.starts[i])
            _write(block.observation, i, world.reset(*numbers) if begin else world.next_episode())

        self._each(block, start)

    def chunk(self, block: WorldArrays, steps: int) -> None:
        """Execute `steps` actions in the active worlds."""

        def execute(i: int, world: World) -> None:
            outcome = world.chunk(np.array(block.actions[i, :steps]))
            _write(block.observation, i, outcome.observation)
            if outcome.final is not None:
                _write(block.final, i, outcome.final)
            executed = len(outcome.rewards)
            block.rewards[i, :executed] = outcome.rewards
            block.steps[i] = executed
            block.terminated[i], block.truncated[i] = outcome.terminated, outcome.truncated
            block.success[i] = -1 if outcome.success is None else outcome.success
            if outcome.warning:
                self.notes.append((world.index, outcome.warning))

        self._each(block, execute)

    def demonstrate(self, block: WorldArrays) -> None:
        """The experts' actions of the active worlds, into ``block.actions[:, 0]``."""

        def ask(i: int, world: World) -> None:
            block.actions[i, 0] = world.demonstrate()

        self._each(block, ask)

    def frame(self, world: int) -> NDArray[np.uint8] | None:
        """A picture of world number `world` of the vector env."""
        picture, why = self._worlds[world - self._worlds[0].index].frame()
        if why:
            self.notes.append((world, why))
        return picture

    def close(self) -> None:
        """Close the envs; what one raises then is a note."""
        for world in self._worlds:
            try:
                world.close()
            except (Exception, SystemExit) as error:
                self.notes.append((world.index, f"cannot be closed: {describe(error)}"))

    def _each(self, block: WorldArrays, work: Callable[[int, World], None]) -> None:
        """Do `work` of (row, world) in the active worlds, each marked in `block` meanwhile."""
        for i in np.flatnonzero(block.active).tolist():
            block.busy[i] = True
            try:
                work(i, self._worlds[i])
            except (Exception, SystemExit) as error:
                raise WorldFailure(self._worlds[i].index, error) from error
            finally:
                block.busy[i] = False
            block.progress[i] += 1


def _write(rows: dict[str, NDArray], i: int, features: Features) -> None:
    for key, value in features.items():
        rows[key][i] = value
