"""The cameras' pictures on a page, one or two in a row; `pictures.html` makes them large at a click."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import cv2
import numpy as np
import viser
from numpy.typing import NDArray

CELL = (168, 224)  # room for a camera's picture: height and width [px]
LARGE_CELL = (480, 640)  # and at most, where somebody looks at it closely
ORDER = 100.0  # on the panel


class Pictures:
    """One image on the panel with all of them.

    Args:
      server: the page.
    """

    def __init__(self, server: viser.ViserServer) -> None:
        self._server = server
        self._handle: viser.GuiImageHandle | None = None

    def show(self, images: Mapping[str, NDArray[np.uint8]], *, large: bool = False) -> None:
        """Show (H, W, 3) pictures; `large`: as they were taken."""
        if not images:
            return
        label, picture = " · ".join(images), mosaic(list(images.values()), large=large)
        if self._handle is None:
            self._handle = self._server.gui.add_image(picture, label=label, format="jpeg", order=ORDER)
        else:
            self._handle.label, self._handle.image = label, picture


def mosaic(images: Sequence[NDArray[np.uint8]], *, large: bool = False) -> NDArray[np.uint8]:
    """(H, W, 3) pictures of any size, one or two in a row, each as large as its cell allows.

    The cell is `CELL`; with `large` it has room for each as it was taken, up to `LARGE_CELL`.
    """
    height, width = CELL
    if large:
        height = min(max(height, *(image.shape[0] for image in images)), LARGE_CELL[0])
        width = min(max(width, *(image.shape[1] for image in images)), LARGE_CELL[1])
    columns = min(len(images), 2)
    rows = -(-len(images) // columns)
    out = np.full((rows * height, columns * width, 3), 255, np.uint8)
    for i, image in enumerate(images):
        scale = min(height / image.shape[0], width / image.shape[1])
        size = max(1, round(scale * image.shape[1])), max(1, round(scale * image.shape[0]))
        small = cv2.resize(image, size, interpolation=cv2.INTER_AREA if scale < 1 else cv2.INTER_LINEAR)
        top = i // columns * height + (height - size[1]) // 2
        left = i % columns * width + (width - size[0]) // 2
        out[top : top + size[1], left : left + size[0]] = small
    return out
