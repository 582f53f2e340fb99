"""The pictures of one camera: from one publisher, of the time of the joint states, and changing when the arm moves.

A camera may repeat its last picture under new stamps. Let p be the picture at which the camera last changed, taken when
the arm was at q with the tcp at x, and p' its newest. It is frozen where

    p' = p to the last byte                                       and some joint has gone MOVED_RAD from q, or
    p' = p to the last byte, SAME times over SAME_S               and some joint has gone NEAR_RAD from q, or
    fewer than FEW of the values of p' differ from those of p      and the tcp has gone MOVED_M from x, or
    no block of BLOCK × BLOCK pixels has another mean by FAINT     and the tcp has gone FAR_M from x,

x of the last line at the last picture whose blocks did differ: a camera that lives has noise in most of its pixels
wherever it looks, and what an arm covers, lights and shades differs by more than noise. One that has been seen to have
noise is frozen sooner, see `hardware.observing.picture_noise`.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Hashable

import numpy as np
from numpy.typing import NDArray

from hardware.observing.clocks import FUTURE_S, MEND
from hardware.observing.picture_noise import PictureNoise
from hardware.observing.timing import Freshness
from hardware.safety.senders import Publishers
from robolearn.core import BadInput
from robots.pair import AnyRobot

Array = NDArray[np.float64]
Picture = NDArray[np.uint8]

MOVED_RAD = 0.05  # a joint that went this far has changed every camera's picture
NEAR_RAD = 0.015  # has, too: in 84 px of MuJoCo as many pictures stay the same, those without the arm in view
# The same of the tcp, for a picture without noise (2.5 mm of a simulated Panda change 2% of the values of either of its
# cameras at 84 px), and for one with noise.
MOVED_M, FAR_M = 0.005, 0.2
BLOCKS_M = 0.02  # before blocks are looked at: a millisecond's work and more
FEW = 1e-3  # of the values: an edge of the gripper is more in a small picture, and noise is in most of them
BLOCK, FAINT = 8, 2.0  # [px]; of 255: noise of 3 in every value is 0.3 in the difference of a block's means

SAME = "the same picture although the arm moved"


class CameraPictures:
    """The newest picture of a camera.

    Args:
      name: of the input, for reasons.
      robot: the arm that it sees, or that carries it, or both arms.
      oldest: by which a picture may be older than the newest joint state at its arrival [s].
      newest: by which it may be younger [s].
      clock: steady time [s].
      describe: the name of a publisher, for reasons.

    Attributes:
      freshness: of its pictures.
      print: checksum of the newest picture's bytes.
    """

    def __init__(
        self, name: str, robot: AnyRobot, oldest: float, newest: float, clock: Callable[[], float],
        describe: Callable[[Hashable], str],
    ) -> None:  # fmt: skip
        self.freshness = Freshness(name, oldest, clock)
        self.print = 0
        self._prints: deque[int] = deque(maxlen=2)  # of the newest pictures
        self._robot, self._oldest, self._newest = robot, oldest, newest + FUTURE_S
        self._publishers = Publishers(name, clock, describe)
        self._decode: Callable[[], Picture] | None = None
        self._pixels: Picture | None = None  # of the newest picture, once they were needed
        self._brightest: int | None = None  # of their values
        # the picture that the camera last changed at, and (n,) where the arm was
        self._before: Callable[[], Picture] | None = None
        self._before_print, self._seen_at = 0, np.zeros(0)
        self._blocks: tuple[Array, Array] | None = None  # of a picture that differed by more than noise: q, their means
        self._frozen, self._noise = "", PictureNoise(clock)

    def update(
        self, fingerprint: int, decode: Callable[[], Picture], stamp: float, *, frame: str, q: Array | None,
        joints_at: float, publisher: Hashable,
    ) -> None:  # fmt: skip
        """A picture arrived whose bytes have the checksum `fingerprint`.

        Args:
          decode: makes (H, W, 3) of it when it is needed.
          stamp: its own [s].
          frame: why it is of the wrong camera, or nothing.
          q: (n,) where the arm is measured [rad], or None before that.
          joints_at: stamp of that [s].
          publisher: identifies its sender.
        """
        self._publishers.heard(publisher)
        newer, behind = self.freshness.update(stamp), 0.0 if q is None else joints_at - stamp
        if not newer and (stamp <= 0 or behind <= self._oldest):
            return
        if frame:
            self.freshness.fault = frame
        elif behind > self._oldest:  # also of an older stamp than before: a camera may be late from now on
            why = "it comes late, or its clock is behind the arm's"
            self.freshness.fault = f"its picture is {behind:.2f} s older than the joint states: {why}; {MEND}"
        elif behind < -self._newest:
            why = "its clock is ahead of the arm's"
            self.freshness.fault = f"its picture is {-behind:.2f} s younger than the joint states: {why}; {MEND}"
        else:
            self.print, self._decode, self._pixels, self._brightest = fingerprint, decode, None, None
            self._prints.append(fingerprint)
            self._noise.update(fingerprint, self.pixels, q, publisher)
            self._compare(q)

    def same_as(self, other: CameraPictures) -> bool:
        """True where one of the two newest pictures of this camera is, to the last byte, one of the other's two:
        between the new picture of the one and that of the other they differ for a moment."""
        return not set(self._prints).isdisjoint(other._prints)

    def problem(self) -> str:
        """The problem, or nothing."""
        if problem := self._publishers.problem() or self.freshness.problem() or self.silence():
            return problem
        return self._frozen and f"{self.freshness.name}: frozen, {self._frozen}"

    def silence(self) -> str:
        """The problem of a camera that has sent nothing new for as long as is allowed, or nothing."""
        if silent := self.freshness.silence():
            return silent
        frozen = self._noise.frozen() or (self._frozen if self._noise.stands else "")
        return frozen and f"{self.freshness.name}: frozen, {frozen}"

    def pixels(self) -> Picture:
        """(H, W, 3) the newest picture. Raises `BadInput`: it cannot be read."""
        if self._pixels is None:
            assert self._decode is not None
            self._pixels = self._decode()
        return self._pixels

    def brightest(self) -> int:
        """The greatest value of the newest picture; 255 before there is one. Raises `BadInput`: as `pixels`."""
        if self._decode is None:
            return 255
        if self._brightest is None:
            self._brightest = int(self.pixels().max())
        return self._brightest

    def _compare(self, q: Array | None) -> None:
        """Judge the newest picture by the one that the camera last changed at."""
        if q is None or self._before is None or not len(self._seen_at):
            self._changed(q)
            return
        moved = np.abs(q - self._seen_at).max() > (NEAR_RAD if self._noise.stands else MOVED_RAD)
        if self.print == self._before_print:
            self._frozen = SAME if moved else self._frozen
        elif moved or self._frozen or self._travel(self._seen_at, q) > MOVED_M:
            try:
                found = self._same(q)
            except BadInput:  # whoever wants the picture is told
                found = ""
            self._frozen = found or ""
            if found == "":
                self._changed(q)

    def _changed(self, q: Array | None) -> None:
        self._before, self._before_print, self._frozen = self._newest_pixels(), self.print, ""
        self._seen_at = np.zeros(0) if q is None else q

    def _newest_pixels(self) -> Callable[[], Picture]:
        """The newest picture, decoded at most once, also when another has come."""
        decode, kept = self._decode, [self._pixels] if self._pixels is not None else []
        assert decode is not None

        def pixels() -> Picture:
            if not kept:
                kept.append(decode())
            return kept[0]

        return pixels

    def _same(self, q: Array) -> str | None:
        """The way in which the newest picture is one of before, although the arm moved; empty where it is another. None
        where only single values differ and the tcp has not gone far: while a hand turns, its joint alone moves."""
        assert self._before is not None
        before, now = self._before(), self.pixels()
        if before.shape != now.shape:
            return ""
        went = self._travel(self._seen_at, q)
        if np.count_nonzero(before != now) < FEW * now.size:
            why = f"the same picture but for single pixels although the arm moved by {100 * went:.1f} cm"
            return why if went > MOVED_M or self._frozen else None
        if self._blocks is not None and not self._frozen and self._travel(self._blocks[0], q) <= BLOCKS_M:
            return ""
        blocks = _blocks(now)
        at, seen = self._blocks or (q, blocks)
        if seen is blocks or np.abs(blocks - seen).max() >= FAINT:
            self._blocks = q, blocks
        elif (went := self._travel(at, q)) > FAR_M:
            return f"the same picture but for noise although the arm moved by {100 * went:.0f} cm"
        return ""

    def _travel(self, a: Array, b: Array) -> float:
        """Distance of the tcp between two positions of the joints [m]; of two arms the greater one."""
        (x, y), _ = self._robot.forward(np.stack([a, b]))
        return float(np.max(np.linalg.norm(y - x, axis=-1)))


def _blocks(picture: Picture) -> Array:
    """(h, w) means of the whole blocks of a picture, one at least."""
    high, wide = (max(extent // BLOCK, 1) for extent in picture.shape[:2])
    cut = picture[: high * BLOCK, : wide * BLOCK].astype(np.float64)
    return cut.reshape(high, -1, wide, cut.shape[1] // wide, 3).mean((1, 3, 4))
