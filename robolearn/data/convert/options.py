"""Facts by the user about files that lack them, the choice of what is taken out of them, and the account of what was
read, left out and changed: a line each, on the screen and in the JSON.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, fields, replace
from typing import TypeVar

from robolearn.core import BadInput, Interface
from robolearn.data.video.container import TOLERANCE_S


@dataclass(frozen=True)
class ReadOptions:
    """Facts that the user gives; each is None or empty where the file is to be believed.

    Attributes:
      task: the task in words.
      hz: frames per second.
      embodiment: name of the arm.
      action_kind: what an action means, e.g. ``"tcp_delta"``.
      unit: of joint positions, of `joint_units.UNITS`.
      gripper_unit: percent, share, metres or jaw.
      named: (name in the file, feature here), in order: the vectors of one feature become one, in place of the usual
        ones; ``action`` is a feature, too.
      filter: the key of a list of episodes in the file.
      cameras: the cameras to take; None takes all, an empty tuple none.
      success: whether episodes succeeded whose success is not recorded, whatever their rewards are.
      tolerance_s: how far from its frame a picture of a video may be shown, and a timestamp may be [s].
      scale: of actions beyond [-1, 1]: by their extremes, or by their quantiles q01 and q99, beyond which they are cut.
      robot: the robot contract that says what the topics of a bag mean, by name or as a file.
      episodes: number of episodes in the file → those to take; None takes all.
      skip_bad: episodes that cannot be read or stored are left out, and named.
    """

    task: str = ""
    hz: float | None = None
    embodiment: str = ""
    action_kind: str = ""
    unit: str = ""
    gripper_unit: str = ""
    named: tuple[tuple[str, str], ...] = ()
    filter: str = ""
    cameras: tuple[str, ...] | None = None
    success: bool | None = None
    tolerance_s: float = TOLERANCE_S
    scale: str = "extremes"
    robot: str = ""
    episodes: Callable[[int], Sequence[int]] | None = None
    skip_bad: bool = False

    def given(self) -> list[str]:
        """The fields that differ from their defaults."""
        usual = ReadOptions()
        return [one.name for one in fields(self) if getattr(self, one.name) != getattr(usual, one.name)]

    def takes(self, camera: str) -> bool:
        """True where the images of `camera` are wanted."""
        return self.cameras is None or camera in self.cameras

    def applied(self, interface: Interface) -> Interface:
        """`interface`, which files brought along, with what the user gives in place of what it has."""
        wanted = {
            key: spec
            for key, spec in interface.observation.items()
            if not key.startswith("images.") or self.takes(key.removeprefix("images."))
        }
        return replace(
            interface,
            observation=wanted,
            control_hz=self.hz or interface.control_hz,
            embodiment=self.embodiment or interface.embodiment,
            action_kind=self.action_kind or interface.action_kind,
        )


SKIPS = "--skip-bad leaves such episodes out"
SKIP_HINT = "`robolearn dataset import` leaves such episodes out with --skip-bad"


def skipped(error: BadInput) -> str:
    """The line on an episode that was left out for `error`, without the hint that it may be."""
    rest = error.hint.removeprefix(SKIP_HINT).removeprefix(SKIPS).removeprefix(", ")
    line = str(error).removesuffix(f". {error.hint}") if error.hint else str(error)
    return line + f". {rest}" * bool(rest)


Key = TypeVar("Key")
Read = TypeVar("Read")


def sound(
    read: Callable[[Key], Read], episodes: Iterable[Key], left_out: list[str], options: ReadOptions
) -> Iterator[tuple[Key, Read]]:
    """(one of `episodes`, what `read` gives for it): for those that can be read, where `options` skips the others."""
    for one in episodes:
        try:
            result = read(one)
        except BadInput as error:
            if not options.skip_bad:
                raise error if error.hint else BadInput(str(error), hint=SKIP_HINT) from None
            left_out.append(skipped(error))
            continue
        yield one, result


@dataclass
class Account:
    """Three lists that grow while episodes are read: what became what, what did not come, what came otherwise.

    Beside them `age_s`: feature → ``{"p50", "p99", "worst"}``, age of its messages in the frames of a bag [s].
    """

    read: list[str] = field(default_factory=list)
    left_out: list[str] = field(default_factory=list)
    changed: list[str] = field(default_factory=list)
    age_s: dict[str, dict[str, float]] = field(default_factory=dict)

    def became(self, feature: str, names: Iterable[str], detail: object = "") -> None:
        """Note that `names` of the file are `feature` here."""
        there = " + ".join(names)
        self.read.append(f"{there} → {feature}" if there != feature else feature)
        if detail:
            self.read[-1] += f" ({detail})"
