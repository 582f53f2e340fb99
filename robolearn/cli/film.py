"""`deploy --video`: a program beside the nodes of a deployment that films it, and its result.

The program is `python -m robolearn.cli.film --contract sim --task lift --out a.mp4`.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import cv2
import numpy as np

from hardware.node_parameters import FilmParameters, parameter_names
from robolearn.core import BadInput
from robolearn.core.machine import leave
from robolearn.deploy.nodes import run_node
from robolearn.deploy.processes import NodeDied, beside, enclave, node_program

if TYPE_CHECKING:
    from hardware.ros2.film_node import Drawer, Seen
    from robots.stations import AnyContract
    from sim.embedded.camera import SceneFilm

FINISH_S = 180.0  # for the pictures that wait to be drawn


@dataclass
class Film:
    """Result of filming.

    Attributes:
      sees: whether it has begun, or never will.
      path: None where there is none.
      error: why there is none.
    """

    sees: Callable[[], bool]
    path: Path | None = None
    error: str = ""


def check_film(path: Path, contract: AnyContract) -> None:
    """Raise `BadInput` where no film can be made, before anything is started."""
    if path.suffix != ".mp4":
        raise BadInput("--video", got=path, expected="a file that ends in .mp4")
    if not contract.simulated and not contract.cameras:
        raise BadInput("--video", got=f"contract {contract.name} without cameras", expected="a contract with some")


@contextmanager
def filmed(path: Path, robot: str, contract: AnyContract, task: str, enclaves: bool) -> Iterator[Film]:
    """Film what happens inside; entered when it can begin, left when it is written.

    Args:
      path: of the film.
      robot: the contract's name or file.
      contract: the same, read.
      task: of the simulated arm.
      enclaves: whether the program that films is in its enclave.

    Raises:
      BadInput, RobolearnError: when entered: it cannot be filmed here.
    """
    from hardware.ros2.film_node import READY, SEES

    flags: dict[str, Any] = {"out": path.absolute(), **({"task": task} if contract.simulated else {})}
    program = node_program("film", robot, 0, ("robolearn.cli.film",), enclave(contract, "film", enclaves), **flags)
    before = path.stat().st_mtime_ns if path.exists() else None
    with beside(program, READY, "--video") as camera:

        def sees() -> bool:
            try:
                camera.check()
            except NodeDied:
                return True
            return SEES in camera.log()

        film = Film(sees)
        try:
            yield film
        finally:
            film.error = camera.finish(FINISH_S)
            if path.exists() and path.stat().st_mtime_ns != before:
                film.path = path
            else:
                film.error = film.error or "nothing was seen"


NICE = 10  # what drives the arm goes first


def captioned(picture: np.ndarray, seen: Seen) -> np.ndarray:
    """`picture` with the caption of `seen`."""
    from robolearn.eval.video import written

    return written(picture, seen.caption) if seen.caption else picture


class SimulatedDrawer:
    """A `Drawer` of the simulated arm, from the joints and the scene that it publishes."""

    def __init__(self, film: SceneFilm) -> None:
        self._film = film

    def draw(self, seen: Seen) -> np.ndarray:
        assert seen.q is not None and seen.scene is not None
        return captioned(self._film.frame(seen.q, seen.openings, seen.scene), seen)

    def close(self) -> None:
        self._film.close()


class CameraDrawer:
    """A `Drawer` of a real station: its cameras' pictures in a row, as high as the highest."""

    def draw(self, seen: Seen) -> np.ndarray:
        height = max(image.shape[0] for image in seen.images.values())
        widths = [round(image.shape[1] * height / image.shape[0]) for image in seen.images.values()]
        images = zip(seen.images.values(), widths, strict=True)
        row = np.concatenate([cv2.resize(image, (width, height)) for image, width in images], axis=1)
        return captioned(row, seen)

    def close(self) -> None:
        pass


def make_drawer(contract: AnyContract, task: str) -> Drawer:
    """The drawer of the arm of `contract`; raises `BadInput` without OpenGL."""
    if not contract.simulated:
        return CameraDrawer()
    from sim.embedded.camera import SceneFilm
    from sim.tasks import TASKS

    return SimulatedDrawer(SceneFilm(contract.robot, TASKS[task]()))


def write(path: Path, pictures: Iterable[np.ndarray], fps: float) -> int:
    """Write the film; whole, or not at all."""
    from robolearn.eval.video import write_video

    return write_video(path, pictures, fps=fps, preset="veryfast")


def main(argv: Sequence[str] | None = None) -> int:
    """Film until a signal ends it; the exit code."""
    os.nice(NICE)
    return run_node(_node, parameter_names(FilmParameters), argv)


def _node() -> Any:
    from hardware.ros2.film_node import FilmNode

    return FilmNode(make_drawer, write)


if __name__ == "__main__":
    leave(main())
