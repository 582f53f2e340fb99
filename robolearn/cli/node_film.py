"""The film of a deployment as a program: `python -m robolearn.cli.node_film --contract sim --task lift --out a.mp4`."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from hardware.node_parameters import FilmParameters, parameter_names
from robolearn.deploy.nodes import leave, run_node

if TYPE_CHECKING:
    from hardware.ros2.film_node import Drawer, Seen
    from robots.stations import Contract
    from sim.embedded.film import SceneFilm

NICE = 10  # what drives the arm goes first


class SimulatedDrawer:
    """A `Drawer` of the simulated arm, from the joints and the scene that it publishes."""

    def __init__(self, film: SceneFilm) -> None:
        self._film = film

    def draw(self, seen: Seen) -> np.ndarray:
        assert seen.q is not None and seen.scene is not None
        return self._film.frame(seen.q, seen.width, seen.scene)

    def close(self) -> None:
        self._film.close()


class CameraDrawer:
    """A `Drawer` of a real station: its cameras' pictures in a row, as high as the highest."""

    def draw(self, seen: Seen) -> np.ndarray:
        import cv2

        height = max(image.shape[0] for image in seen.images.values())
        return np.concatenate(
            [
                cv2.resize(image, (round(image.shape[1] * height / image.shape[0]), height))
                for image in seen.images.values()
            ],
            axis=1,
        )

    def close(self) -> None:
        pass


def make_drawer(contract: Contract, task: str) -> Drawer:
    """What draws the arm of `contract`; raises `BadInput` without OpenGL."""
    if not contract.simulated:
        return CameraDrawer()
    from sim.embedded.film import SceneFilm
    from sim.tasks import TASKS

    return SimulatedDrawer(SceneFilm(contract.robot, TASKS[task]()))


def write(path: Path, pictures: Iterable[np.ndarray], fps: float) -> int:
    """Write the film; whole, or not at all."""
    from robolearn.eval.video import write_video

    return write_video(path, pictures, fps=fps, preset="veryfast")


def main(argv: Sequence[str] | None = None) -> int:
    """Film until told to end; the exit code."""
    os.nice(NICE)
    return run_node(_node, parameter_names(FilmParameters), argv)


def _node() -> Any:
    from hardware.ros2.film_node import FilmNode

    return FilmNode(make_drawer, write)


if __name__ == "__main__":
    leave(main())
