"""The pictures of a calibration on disk, each with the joint positions at which it was taken.

A folder with ``shots.json``, ``{"joints": [names], "shots": [{"picture": "000.png", "positions": [rad, …]}, …]}``,
and the pictures as PNG files beside it, raw: neither cut nor resized.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import cv2
import numpy as np
from numpy.typing import NDArray
from pydantic import BaseModel, ConfigDict, FiniteFloat, ValidationError

from hardware.calibration.board import Board
from hardware.calibration.hand_eye import BoardView, pose_matrix
from robolearn.core import BadInput
from robots.spec import RobotSpec
from robots.stations.values import bad_input

SHOTS = "shots.json"


@dataclass(frozen=True, eq=False)
class Shot:
    """A picture (H, W, 3) rgb, and the n joint positions [rad], base to tip, at which it was taken."""

    picture: NDArray[np.uint8]
    positions: tuple[float, ...]


class _Shot(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True)
    picture: str
    positions: list[FiniteFloat]


class _Shots(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True)
    joints: list[str]
    shots: list[_Shot]


def write_shots(folder: Path, joints: Sequence[str], shots: Sequence[Shot]) -> None:
    """Write `shots` into `folder`, which is made."""
    folder.mkdir(parents=True, exist_ok=True)
    found = []
    for i, shot in enumerate(shots):
        name = f"{i:03d}.png"
        cv2.imwrite(str(folder / name), shot.picture[..., ::-1])
        found.append({"picture": name, "positions": list(shot.positions)})
    text = json.dumps({"joints": list(joints), "shots": found}, indent=1)
    (folder / SHOTS).write_text(text + "\n", encoding="utf-8")


def read_shots(folder: Path, joints: Sequence[str]) -> list[Shot]:
    """The shots that `write_shots` wrote, the positions in the order of `joints`.

    Raises:
      BadInput: the folder, a picture or a joint is not there, or the list is damaged.
    """
    path = folder / SHOTS
    if not path.is_file():
        raise BadInput(f"pictures in {folder}", got=f"no {SHOTS}", expected="a folder of robolearn calibrate --out")
    try:
        listed = _Shots.model_validate_json(path.read_bytes())
    except ValidationError as error:
        raise bad_input(error, str(path)) from error
    if missing := [joint for joint in joints if joint not in listed.joints]:
        raise BadInput(f"{path}: joints", got=f"no {missing[0]}", available=listed.joints)
    order = [listed.joints.index(joint) for joint in joints]
    shots = []
    for shot in listed.shots:
        picture = cv2.imread(str(folder / Path(shot.picture).name), cv2.IMREAD_COLOR)
        if picture is None:
            raise BadInput(f"{path}: picture", got=shot.picture, expected="a PNG or JPEG beside it")
        if len(shot.positions) != len(listed.joints):
            raise BadInput(f"{path}: positions of {shot.picture}", got=len(shot.positions), expected=len(listed.joints))
        rgb = np.ascontiguousarray(picture[..., ::-1]).astype(np.uint8, copy=False)
        shots.append(Shot(rgb, tuple(shot.positions[i] for i in order)))
    return shots


def views_of(shots: Sequence[Shot], board: Board, robot: RobotSpec) -> list[BoardView]:
    """The shots that show the board, as views.

    Raises:
      BadInput: the pictures differ in size.
    """
    sizes = {shot.picture.shape[:2] for shot in shots}
    if len(sizes) > 1:
        raise BadInput("sizes of the pictures", got=sorted(sizes), expected="one")
    views = []
    for shot in shots:
        if (seen := board.detect(shot.picture)) is not None:
            pos, rot = robot.flange_chain.forward(np.array([shot.positions]))
            views.append(BoardView(pose_matrix(rot[0], pos[0]), *seen))
    return views
