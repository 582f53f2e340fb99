"""The ChArUco board: a chessboard with a marker in each white square, so that a part of it is enough."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import cv2
import numpy as np
from numpy.typing import NDArray

from robolearn.core import BadInput, check_choice

Array = NDArray[np.float64]

MILLIMETRES = 25.4  # an inch
PAPERS = {"a4": (210.0, 297.0), "a3": (297.0, 420.0), "letter": (215.9, 279.4)}  # [mm] upright
MARGIN = 10.0  # [mm] that printers leave white
RULER = 100.0  # [mm]
DPI = 300
LEAST_CORNERS = 6  # that a pose is made of
SUFFIXES = (".pdf", ".png")


@dataclass(frozen=True)
class Board:
    """A board of `columns` × `rows` squares, with the edges of a square and of a marker [m].

    Raises:
      BadInput: fewer than 3 squares a side, more markers than there are, or markers that do not fit their squares.
    """

    columns: int = 7
    rows: int = 5
    square: float = 0.03
    marker: float = 0.022

    def __post_init__(self) -> None:
        if min(self.columns, self.rows) < 3 or self.columns * self.rows > 200:
            got = f"{self.columns}×{self.rows} squares"
            raise BadInput("board", got=got, expected="at least 3×3, at most 200 squares")
        if not 0.0 < self.marker < self.square < 1.0:
            got = f"markers of {self.marker:g} m in squares of {self.square:g} m"
            raise BadInput("board", got=got, expected="a marker smaller than its square, below 1 m")

    @cached_property
    def _board(self) -> Any:
        markers = cv2.aruco.getPredefinedDictionary(cv2.aruco.DICT_5X5_100)
        return cv2.aruco.CharucoBoard((self.columns, self.rows), self.square, self.marker, markers)

    @property
    def size(self) -> tuple[float, float]:
        """Width and height of the chessboard [m]."""
        return self.columns * self.square, self.rows * self.square

    def detect(self, rgb: NDArray[np.uint8]) -> tuple[Array, Array] | None:
        """The inner corners of the chessboard that a picture (H, W, 3) shows.

        Returns:
          (n, 2) pixels and (n, 3) places on the board [m], in the frame with its origin at the upper left corner, x
          along the columns, y along the rows; None: fewer than six, or all on one line.
        """
        detector: Any = cv2.aruco.CharucoDetector(self._board)
        corners, ids, _, _ = detector.detectBoard(cv2.cvtColor(rgb, cv2.COLOR_RGB2GRAY))
        if ids is None or len(ids) < LEAST_CORNERS:
            return None
        places = np.asarray(self._board.getChessboardCorners(), dtype=np.float64)[ids.ravel()]
        if np.linalg.matrix_rank(places[:, :2] - places[0, :2], tol=0.1 * self.square) < 2:
            return None
        return corners.reshape(-1, 2).astype(np.float64), places

    def draw(self, pixels_per_square: int = 100) -> NDArray[np.uint8]:
        """(H, W) picture of the chessboard alone."""
        size = (self.columns * pixels_per_square, self.rows * pixels_per_square)
        return np.asarray(self._board.generateImage(size, marginSize=0), dtype=np.uint8)

    def write(self, path: Path, paper: str = "a4") -> tuple[float, float]:
        """Write a page to print at 100%, with a ruler to check that; returns its width and height [mm].

        Raises:
          BadInput: another suffix than .pdf or .png, no such paper, or a board that does not fit on it.
        """
        if path.suffix.lower() not in SUFFIXES:
            raise BadInput("--board", got=path.name, available=SUFFIXES)
        check_choice("--paper", paper, PAPERS)
        width, height = (1e3 * edge for edge in self.size)
        below = 25.0  # [mm] for the ruler and the words
        short, long = PAPERS[paper]
        pages = ((short, long), (long, short))
        fitting = [p for p in pages if width + 2 * MARGIN <= p[0] and height + below + 2 * MARGIN <= p[1]]
        if not fitting:
            got = f"{width:.0f}×{height:.0f} mm"
            raise BadInput(f"board on {paper}", got=got, expected="a smaller one, or larger paper")
        _print(path, fitting[0], (width, height), self)
        return fitting[0]


def _print(path: Path, page: tuple[float, float], size: tuple[float, float], board: Board) -> None:
    from matplotlib.figure import Figure

    figure = Figure(figsize=(page[0] / MILLIMETRES, page[1] / MILLIMETRES))

    def place(left: float, bottom: float, width: float, height: float) -> Any:
        """Axes of so many millimetres, from the lower left corner of the page."""
        axes = figure.add_axes((left / page[0], bottom / page[1], width / page[0], height / page[1]))
        axes.set_axis_off()
        return axes

    left, bottom = (page[0] - size[0]) / 2, page[1] - MARGIN - size[1]
    place(left, bottom, *size).imshow(board.draw(), cmap="gray", vmin=0, vmax=255, aspect="auto", interpolation="none")
    ruler = place((page[0] - RULER) / 2, bottom - 8.0, RULER, 4.0)
    ruler.set_xlim(0, RULER)
    ruler.set_ylim(0, 1)
    ruler.vlines(np.arange(0, RULER + 1, 10), 0, 1, color="black", linewidth=0.5, clip_on=False)
    ruler.hlines(0, 0, RULER, color="black", linewidth=0.5, clip_on=False)
    words = (
        f"{board.columns}×{board.rows} squares of {1e3 * board.square:.1f} mm, markers {1e3 * board.marker:.1f} mm. "
        f"Print at 100%: the ruler is {RULER:.0f} mm long. Glue it to something flat and stiff."
    )
    figure.text(0.5, (bottom - 14.0) / page[1], words, ha="center", va="center", fontsize=7)
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=DPI)
