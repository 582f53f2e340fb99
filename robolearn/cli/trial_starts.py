"""The start of a trial's block as the cameras saw it: kept with the first policy, shown before the others.

Pictures are kept in the folder of the trial at the moment when the person says that everything is in its place. Before
the next policy a page on loopback shows them under what the cameras see then. Which policy acts is not said.
"""

from __future__ import annotations

import contextlib
import logging
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import quote, unquote

import cv2
import numpy as np
from numpy.typing import NDArray

from robolearn.core import RobolearnError
from robolearn.core.installation import install_command
from robolearn.io.atomic import write_bytes

if TYPE_CHECKING:
    from hardware.teleop.browser.ghost import GhostPage
    from robots.stations import AnyContract

log = logging.getLogger(__name__)

STARTS = "starts"  # in the folder of the trial
WAIT_S = 2.0  # for the first picture, where nobody had to be waited for

Pictures = dict[str, NDArray[np.uint8]]


def read_start(folder: Path, block: int) -> Pictures:
    """Camera → (H, W, 3) of the start of a block; empty where none were kept."""
    found = {}
    for path in sorted(_folder(folder, block).glob("*.png")):
        picture = cv2.imread(str(path))
        if picture is not None:
            found[unquote(path.stem)] = np.ascontiguousarray(picture[..., ::-1]).astype(np.uint8, copy=False)
    return found


def keep_start(folder: Path, block: int, pictures: Pictures) -> None:
    """The inverse of `read_start`; what was kept before goes. Raises `OSError`: it cannot be written."""
    place = _folder(folder, block)
    place.mkdir(parents=True, exist_ok=True)
    for old in place.glob("*.png"):
        old.unlink()
    for name, picture in pictures.items():
        done, data = cv2.imencode(".png", np.ascontiguousarray(picture[..., ::-1]))
        assert done
        write_bytes(place / f"{quote(name, safe='')}.png", data.tobytes())


def _folder(folder: Path, block: int) -> Path:
    return folder / STARTS / f"block-{block + 1}"


class TrialStarts:
    """Shows and keeps starts of a trial in `folder`, from the first episode until `close`. A station without cameras
    has none, and so has an installation without the page's libraries.

    Args:
      feed: opens what returns the cameras' newest pictures, for as long as its context lasts.
    """

    def __init__(
        self, folder: Path, feed: Callable[[], contextlib.AbstractContextManager[Callable[[], Pictures]]]
    ) -> None:
        self._folder, self._feed = folder, feed
        self._page: GhostPage | None = None
        self._no_page = False

    @contextlib.contextmanager
    def restoring(self, text: str, block: int, first: bool) -> Iterator[None]:
        """While the person puts things in their places, as `text` says; at the end the start is kept where it is the
        `first` of its block, or none was."""
        with self._feed() as now:
            then = {} if first else read_start(self._folder, block)
            page = self._opened()
            if page is not None:
                page.show(text, then, now)
            try:
                yield
                if not then:
                    self._keep(block, now)
            finally:
                if page is not None:
                    page.show("", {}, dict)

    def close(self) -> None:
        """Take the page away."""
        if self._page is not None:
            self._page.close()

    def _keep(self, block: int, now: Callable[[], Pictures]) -> None:
        end = time.monotonic() + WAIT_S
        while not (pictures := now()) and time.monotonic() < end:
            time.sleep(0.05)
        try:
            keep_start(self._folder, block, pictures)
        except OSError as error:  # the trial does not depend on them
            log.warning("the pictures of this start are not kept: %s", error)

    def _opened(self) -> Any:
        """The page, opened with the first start; None without its libraries, or where it cannot listen."""
        if self._page is None and not self._no_page:
            try:
                from hardware.teleop.browser.ghost import GhostPage

                self._page = GhostPage()
                print(f"The cameras beside the start: open {self._page.url}", file=sys.stderr, flush=True)
            except (ImportError, RobolearnError) as error:
                self._no_page = True
                log.warning("no page with the start to restore: %s (%s)", error, install_command("console"))
        return self._page


@contextlib.contextmanager
def camera_feed(contract: AnyContract, enclaves: bool) -> Iterator[Callable[[], Pictures]]:
    """Within, the cameras of `contract` are heard: a function that returns their newest pictures."""
    from hardware.ros2.camera_feed import NAME, CameraFeed
    from hardware.ros2.process import Background
    from robolearn.deploy.processes import enclave

    with Background(args=enclave(contract, NAME, enclaves)) as background:
        yield CameraFeed(background, contract).pictures
