"""The section of a contract file about one camera: topic, what becomes of its pictures, its lens and its pose."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import AfterValidator, BeforeValidator, StrictFloat

from robots.stations.contract import Camera, CameraPose, Intrinsics
from robots.stations.message_types import TYPES
from robots.stations.schema_mounting import CameraPoseSection
from robots.stations.schema_values import (
    Edge,
    Finite,
    Section,
    Share,
    TopicName,
    TopicSection,
    Word,
    edge,
    entries,
    one_of,
    refuse,
)

DISTORTIONS = (0, 4, 5, 8, 12)  # coefficients that OpenCV's models have
DEPTH = (0.0, 100.0)  # [m]

Size = Annotated[list[Edge], BeforeValidator(lambda value: entries(value, 2))]


def _crop(value: Any) -> Any:
    if value == "center":
        return value
    if not isinstance(value, list) or len(value) != 4:
        raise refuse("center, or [top, left, height, width] in pixels")
    for place in value[:2]:
        if isinstance(place, bool) or not isinstance(place, int) or not 0 <= place <= 4096:
            raise refuse("[top, left, height, width] in pixels, top and left from 0 to 4096")
    return tuple([*value[:2], *(edge(length) for length in value[2:])])


def _depth(value: list[float]) -> list[float]:
    near, far = value
    if not DEPTH[0] <= near < far <= DEPTH[1]:
        raise refuse(f"[near, far] with {DEPTH[0]:g} <= near < far <= {DEPTH[1]:g} m")
    return value


def _distortion(value: Any) -> Any:
    if not isinstance(value, list) or len(value) not in DISTORTIONS:
        raise refuse(
            f"a list of {', '.join(map(str, DISTORTIONS))} coefficients of OpenCV's plumb_bob or rational model"
        )
    return value


class IntrinsicsSection(Section):
    """A lens: size of the picture it holds for, focal lengths and centre [px], distortion as OpenCV has it."""

    size: Size
    fx: Share
    fy: Share
    cx: Finite
    cy: Finite
    distortion: Annotated[list[Finite], BeforeValidator(_distortion)] | None = None

    def intrinsics(self) -> Intrinsics:
        """The same as a record."""
        height, width = self.size
        return Intrinsics((height, width), self.fx, self.fy, self.cx, self.cy, tuple(self.distortion or ()))


class CameraSection(TopicSection):
    type: Annotated[str, one_of(TYPES["cameras"])]
    size: Size = list(Camera.size)  # noqa: RUF012 (pydantic copies it)
    crop: Annotated[Any, BeforeValidator(_crop)] = None
    depth: (
        Annotated[list[StrictFloat], BeforeValidator(lambda value: entries(value, 2)), AfterValidator(_depth)] | None
    ) = None
    frame: Word | None = None
    info: TopicName | None = None
    intrinsics: IntrinsicsSection | None = None
    pose: CameraPoseSection | None = None

    def camera(self) -> Camera:
        """The same as a record."""
        height, width = self.size
        pose = None if self.pose is None else CameraPose(self.pose.parent, self.pose.pose())
        return Camera(
            self.topic,
            self.type,
            self.max_age_s,
            (height, width),
            crop=self.crop,
            depth=None if self.depth is None else (self.depth[0], self.depth[1]),
            frame=(self.frame or "").lstrip("/"),
            info=self.info or "",
            intrinsics=None if self.intrinsics is None else self.intrinsics.intrinsics(),
            pose=pose,
        )
