"""Cousins of a task's scene: they afford the same with another thing, another table and things that stand about.

A twin is the scene as it is laid out; cousins are drawn around it, so that what is learned from them does not hang on
one size (Digital Cousins, arXiv 2410.07408, has them made from a photograph). A range says what differs:

    width ~ U(a, b),   length = aspect · width,   …        all of one episode, or of one world for good

Nothing but (seed, start id, episode) decides a draw, and starts are those of the twin.
"""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated, Any, ClassVar

import numpy as np
from numpy.typing import NDArray
from pydantic import AfterValidator, BeforeValidator, TypeAdapter, ValidationError

from robolearn.core.errors import BadInput
from robolearn.io.json_files import read_json
from robots import AnyRobot
from robots.spec import GripperKind
from robots.stations.values import Finite, Word, bad_input, one_of, place, read_yaml, section, unique

Array = NDArray[np.float64]

SHAPES = ("box", "cylinder", "sphere", "capsule")
WHEN = ("episode", "world")
STREAM = 6  # apart from the numbers that starts, dynamics and looks are drawn from
TRIES = 40  # places that are tried for each thing that stands about
OPENED, MARGIN = 0.08, 0.02  # a script opens no gripper wider; room for its fingers beside a thing [m]
ABOUT = np.array([(0.012, 0.030), (0.012, 0.030), (0.010, 0.020)])  # half sizes of what stands about [m]


@dataclass(frozen=True)
class Bound:
    """Values that a parameter may have."""

    low: float
    high: float
    unit: str
    meaning: str


BOUNDS: dict[str, Bound] = {
    "width": Bound(0.016, 0.12, "m", "of the thing, between the fingers"),
    "aspect": Bound(1.0, 2.5, "", "length of a box or capsule, in widths"),
    "height": Bound(0.02, 0.08, "m", "of a box or cylinder"),
    "mass": Bound(0.01, 2.0, "kg", "of the thing"),
    "clutter": Bound(0, 6, "", "number of things that stand about, where there is room"),
    "table": Bound(-0.05, 0.05, "m", "height of the table"),
}
"""All numbers of a range, in the order in which they are drawn."""


@dataclass(frozen=True)
class Cousin:
    """One scene.

    Attributes:
      half: (3,) half sizes of the box around the thing as it lies [m].
      about: (K, 3) half sizes of the things that stand about, alike.
      round: (K,) which of these are cylinders, the others are boxes.
      places: (TRIES, K, 2) shares of the table's width and length at which they may stand.
    """

    shape: str
    half: Array
    mass: float  # [kg]
    table: float  # height of its top [m]
    about: Array
    round: NDArray[np.bool_]
    places: Array


def _two(value: Any) -> Any:
    return value if isinstance(value, list) else [value, value]


Ends = Annotated[tuple[Finite, Finite], BeforeValidator(_two)]


@section
class CousinRange:
    """A range of scenes: uniform between the two values of each parameter; by default the twin alone."""

    injected: ClassVar[tuple[str, ...]] = ("name",)
    name: str  # a named range's, or the path of a file
    shapes: Annotated[tuple[Annotated[Word, one_of(SHAPES)], ...], AfterValidator(unique)] = ("box",)
    width: Ends = (0.04, 0.04)
    aspect: Ends = (1.0, 1.0)
    height: Ends = (0.04, 0.04)
    mass: Ends = (0.1, 0.1)
    clutter: Ends = (0, 0)
    table: Ends = (0.0, 0.0)
    when: Annotated[Word, one_of(WHEN)] = "episode"

    @property
    def most_about(self) -> int:
        """The largest number of things that stand about."""
        return int(self.clutter[1])

    def draw(self, key: tuple[int, int, int]) -> Cousin:
        """The scene of (seed, start id, episode) = `key`. As many numbers are drawn for each scene, whatever they are
        used for."""
        rng = np.random.default_rng([STREAM, *(key if self.when == "episode" else key[:2])])
        shape = self.shapes[int(rng.integers(len(self.shapes)))]
        ranges = np.array([getattr(self, name) for name in BOUNDS], dtype=np.float64)
        u = rng.random(len(ranges))
        width, aspect, height, mass, _, table = ranges[:, 0] + u * (ranges[:, 1] - ranges[:, 0])
        low, high = (int(end) for end in self.clutter)
        count = low + int(u[4] * (high - low + 1))
        about = ABOUT[:, 0] + rng.random((self.most_about, 3)) * np.ptp(ABOUT, axis=1)
        rounded, places = rng.random(self.most_about) < 0.5, rng.random((TRIES, self.most_about, 2))
        return Cousin(
            shape, half_sizes(shape, width, aspect, height), mass, table, about[:count], rounded[:count],
            places[:, :count],
        )  # fmt: skip

    def check(self, robot: AnyRobot) -> None:
        """Raise `BadInput` where `robot` has a jaw, or a thing is wider than its gripper takes."""
        grippers = [part.robot.gripper for part in robot.parts]
        if any(gripper.kind is GripperKind.REVOLUTE for gripper in grippers):
            raise BadInput("robot of cousins", got=robot.name, expected="two fingers: scripts of a jaw know one cube")
        opens = min(OPENED, *(gripper.max_width for gripper in grippers))
        if self.width[1] > opens - MARGIN + 1e-9:
            expected = f"at most {opens - MARGIN:g} m: the gripper of {robot.name} opens by {opens:g} m in scripts"
            raise BadInput(f"cousins {self.name}: width", got=self.width[1], expected=expected)

    def said(self) -> list[str]:
        """The differences from scene to scene, in words."""
        lines = [f"shape: {', '.join(self.shapes)}"]
        for name, bound in BOUNDS.items():
            low, high = getattr(self, name)
            unit = f" {bound.unit}" if bound.unit else ""
            lines.append(f"{name}: {low:g}{f' to {high:g}' if high != low else ''}{unit}, {bound.meaning}")
        return [*lines, f"drawn for each {self.when}"]

    def described(self) -> dict[str, Any]:
        """For the description of what is recorded in these scenes."""
        return {name: list(value) if isinstance(value, tuple) else value for name, value in asdict(self).items()}


def half_sizes(shape: str, width: float, aspect: float, height: float) -> Array:
    """(3,) half sizes of a thing as it lies: its length along x, its width along y, its height [m]."""
    r = 0.5 * width
    return {
        "box": np.array([aspect * r, r, 0.5 * height]),
        "cylinder": np.array([r, r, 0.5 * height]),
        "sphere": np.array([r, r, r]),
        "capsule": np.array([aspect * r, r, r]),
    }[shape]


def inertia(shape: str, half: Array, mass: float) -> Array:
    """(3,) of a thing of even density, about x, y and z [kg m²].

    box        Ix = m (b² + c²) / 3                           a, b, c: half sizes
    cylinder   Iz = m r² / 2,  Ix = Iy = m (3 r² + h²) / 12    h = 2 c
    sphere     I = 2 m r² / 5
    capsule    a cylinder of length l with a ball in two halves, l / 2 + 3 r / 8 from its middle, along x
    """
    if shape == "box":
        a, b, c = half**2
        return mass / 3.0 * np.array([b + c, a + c, a + b])
    r = float(half[1])
    if shape == "sphere":
        return np.full(3, 0.4 * mass * r**2)
    if shape == "cylinder":
        across = mass * (3.0 * r**2 + (2.0 * half[2]) ** 2) / 12.0
        return np.array([across, across, 0.5 * mass * r**2])
    length = 2.0 * (float(half[0]) - r)
    share = length / (length + 4.0 / 3.0 * r)  # of the cylinder in the volume: π r² l to π r² (l + 4/3 r)
    tube, ball = share * mass, (1.0 - share) * mass
    along = 0.5 * tube * r**2 + 0.4 * ball * r**2
    across = tube * (3.0 * r**2 + length**2) / 12.0 + ball * (0.4 * r**2 + 0.25 * length**2 + 0.375 * length * r)
    return np.array([along, across, across])


TWIN = "none"
COUSINS: dict[str, CousinRange] = {
    "twin": CousinRange("twin"),  # the twin, with the feature that says so: for policies that see it
    "train": CousinRange(
        "train", ("box", "cylinder"), (0.030, 0.046), (1.0, 1.3), (0.030, 0.050), (0.05, 0.20), (0, 2), (-0.02, 0.02)
    ),
    # Nothing of it lies within the other: shapes that roll, wider, heavier, on a higher table, among more.
    "held-out": CousinRange(
        "held-out", ("box", "cylinder", "sphere", "capsule"), (0.048, 0.058), (1.0, 1.3), (0.044, 0.060), (0.22, 0.40),
        (3, 4), (0.025, 0.045),
    ),
}  # fmt: skip
"""The named ranges; the twin lies in that for training."""


def cousin_names() -> tuple[str, ...]:
    """Named ranges, and the form of a file's name."""
    return (TWIN, *COUSINS, "<path>.yaml")


def load_cousins(name: str) -> CousinRange | None:
    """The range called `name`, or in the file (YAML or JSON) `name`; None for the twin. Raises `BadInput`: neither of
    them, or a mistake in the file."""
    if name == TWIN:
        return None
    if name in COUSINS:
        return COUSINS[name]
    path = Path(name)
    if path.suffix not in (".yaml", ".yml", ".json"):
        raise BadInput("cousins", got=name, available=cousin_names())
    if not path.is_file():
        raise BadInput("cousins", got=f"{path}, which is not there", available=cousin_names())
    data = read_json(path, what=f"cousins {path}") if path.suffix == ".json" else read_yaml(path)
    named = {**data, "name": str(path)} if isinstance(data, dict) else data
    try:
        found = TypeAdapter(CousinRange).validate_python(named)
    except ValidationError as error:
        raise bad_input(error, place(path)) from None
    _check(found, place(path))
    return found


def _check(found: CousinRange, file: str) -> None:
    if not found.shapes:
        raise BadInput(f"{file}: shapes", got="nothing", available=SHAPES)
    for name, bound in BOUNDS.items():
        low, high = getattr(found, name)
        for value in (low, high):
            if not bound.low <= value <= bound.high:
                raise BadInput(f"{file}: {name}", got=value, expected=f"{bound.low:g} to {bound.high:g} {bound.unit}")
        if low > high:
            raise BadInput(f"{file}: {name}", got=[low, high], expected="the lower value first")
    if not all(math.floor(value) == value for value in found.clutter):
        raise BadInput(f"{file}: clutter", got=list(found.clutter), expected="whole numbers")
