"""Parts of a station's contract that are mounted: tool, frames, cameras; checked where they come from a file."""

from __future__ import annotations

import math
from dataclasses import field
from typing import Annotated, Any

import numpy as np
from pydantic import AfterValidator, BeforeValidator, PlainValidator, StrictFloat, StrictInt, model_validator

from robolearn.core.errors import BadInput
from robots.spec import Pose, Tool, ToolBox
from robots.stations import values
from robots.stations.parts import Topic

DISTORTIONS = (0, 4, 5, 8, 12)  # coefficients that OpenCV's models have
TURNS = (0, 90, 180, 270)  # [degrees]
DEPTH = (0.0, 100.0)  # [m]
MASS = (0.0, 20.0)  # [kg]
ANGLE = (-2 * math.pi, 2 * math.pi)


def _crop(value: Any) -> Any:
    if value == "center":
        return value
    if not isinstance(value, list) or len(value) != 4:
        raise values.refuse("center, or [top, left, height, width] in pixels")
    for place in value[:2]:
        if isinstance(place, bool) or not isinstance(place, int) or not 0 <= place <= 4096:
            raise values.refuse("[top, left, height, width] in pixels, top and left from 0 to 4096")
    return tuple([*value[:2], *(values.edge(length) for length in value[2:])])


def _distortion(value: Any) -> Any:
    if not isinstance(value, list) or len(value) not in DISTORTIONS:
        raise values.refuse(
            f"a list of {', '.join(map(str, DISTORTIONS))} coefficients of OpenCV's plumb_bob or rational model"
        )
    return value


Size = Annotated[tuple[values.Edge, values.Edge], BeforeValidator(lambda value: values.entries(value, 2))]
Crop = Annotated[tuple[int, int, int, int] | str | None, PlainValidator(_crop)]
Turn = Annotated[StrictInt, values.must(lambda value: value in TURNS, f"one of {', '.join(map(str, TURNS))} degrees")]
Distances = Annotated[
    tuple[StrictFloat, StrictFloat],
    BeforeValidator(lambda value: values.entries(value, 2)),
    values.must(
        lambda value: DEPTH[0] <= value[0] < value[1] <= DEPTH[1],
        f"[near, far] with {DEPTH[0]:g} <= near < far <= {DEPTH[1]:g} m",
    ),
]
_Angle = Annotated[StrictFloat, values.within(*ANGLE)]
Angles = Annotated[tuple[_Angle, _Angle, _Angle], BeforeValidator(lambda value: values.entries(value, 3))]
_Share = Annotated[StrictFloat, values.within(-1.0, 1.0)]
Quaternion = Annotated[tuple[_Share, _Share, _Share, _Share], BeforeValidator(lambda value: values.entries(value, 4))]


# --- where things are mounted --------------------------------------------------------------------------------


@values.section
class PoseForm:
    """A pose; turned by a quaternion, by angles, or not at all.

    Attributes:
      position: x, y, z [m].
      quaternion: wxyz.
      rpy: roll, pitch and yaw of a URDF [rad].
    """

    position: values.Corner
    quaternion: Quaternion | None = None
    rpy: Angles | None = None

    @model_validator(mode="after")
    def _check_rotation(self) -> PoseForm:
        if self.quaternion is not None and self.rpy is not None:
            raise values.refuse("either quaternion or rpy", got="both")
        self.pose()
        return self

    def pose(self) -> Pose:
        """The pose itself."""
        if self.rpy is not None:
            return Pose.from_rpy(self.position, self.rpy)
        try:
            return Pose(self.position, self.quaternion or (1.0, 0.0, 0.0, 0.0))
        except BadInput as error:
            raise values.refuse(
                "a quaternion wxyz of length 1", got=f"{np.linalg.norm(self.quaternion or ()):.4g}"
            ) from error


@values.section
class BoxForm:
    """A box.

    Attributes:
      lower, upper: its corners [m].
    """

    lower: values.Corner
    upper: values.Corner


@values.section
class ToolForm:
    """Tool on the flange in place of the robot's own hand, or in addition.

    Attributes:
      tcp: its pose in the frame of the flange.
      boxes: the space that it takes, frame of the flange.
      mass: besides that of the model's hand [kg].
      centre: of that mass, frame of the flange [m].
    """

    tcp: PoseForm
    boxes: dict[str, BoxForm] | None = None
    mass: Annotated[StrictFloat, values.within(*MASS)] = 0.0
    centre: values.Corner | None = None

    @model_validator(mode="after")
    def _check_mass(self) -> ToolForm:
        if self.centre is not None and self.mass == 0.0:
            raise values.refuse("the key 'mass' with its centre", got="nothing")
        return self

    def tool(self) -> Tool:
        """The tool itself."""
        boxes = tuple(ToolBox(str(name), box.lower, box.upper) for name, box in (self.boxes or {}).items())
        return Tool(self.tcp.pose(), boxes, self.mass, self.centre or (0.0, 0.0, 0.0))


@values.section
class CameraPoseForm(PoseForm):
    """`CameraPose` as `robolearn calibrate` writes it.

    Attributes:
      parent: the frame that it is in.
    """

    parent: Annotated[str, values.one_of(("base", "flange"))] = field(kw_only=True)

    def record(self) -> CameraPose:
        """The pose itself."""
        return CameraPose(self.parent, self.pose())


# --- cameras -----------------------------------------------------------------------------------------------


@values.section
class Intrinsics:
    """A lens.

    Attributes:
      size: (height, width) of the pictures that the rest holds for [px].
      fx, fy: focal lengths [px].
      cx, cy: centre [px].
      distortion: coefficients in OpenCV's order, k1, k2, p1, p2, k3, …; none: none.
    """

    size: Size
    fx: values.Share
    fy: values.Share
    cx: values.Finite
    cy: values.Finite
    distortion: Annotated[tuple[values.Finite, ...], BeforeValidator(_distortion)] = ()


@values.section
class CameraPose:
    """Mounting pose of a camera (z forward, x right, y down) in the frame of its `parent`, base or flange."""

    parent: str
    pose: Pose


@values.section
class Camera(Topic):
    """A camera, and what becomes of its pictures for the policy.

    Attributes:
      size: (height, width) that they are resized to [px].
      rotate: clockwise, of a camera that is not mounted upright [degrees]; first of all. `intrinsics` and `pose` hold
        for the pictures as they come.
      crop: (top, left, height, width) that is cut out of the picture before it is resized [px]; ``"center"``: the
        largest part in its middle that has the shape of `size`; None: all of it.
      depth: distances [m] that become white and black; needed for depth images and meaningless for others.
      frame: what its pictures state as their frame in the header; empty: they are not asked. Cameras that are swapped
        show by it.
      info: the topic of its CameraInfo; empty: none.
      intrinsics: its lens, or None.
      pose: where it is mounted, or None.
    """

    type: Annotated[str, values.one_of(values.TYPES["cameras"])]
    size: Size = (84, 84)
    rotate: Turn = 0
    crop: Crop = None
    depth: Distances | None = None
    frame: Annotated[values.Word, AfterValidator(lambda text: text.lstrip("/"))] = ""
    info: values.TopicName = ""
    intrinsics: Intrinsics | None = None
    pose: Annotated[CameraPose, values.read_by(CameraPoseForm)] | None = None


@values.section
class Frames:
    """Names of the arm's frames in tf: they stand in the headers of what is published.

    Attributes:
      base: that in which poses are.
      flange: where tools are mounted.
      tcp: tool centre point.
    """

    base: values.Word = "base"
    flange: values.Word = "flange"
    tcp: values.Word = "tcp"
