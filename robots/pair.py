"""`PairSpec`: two arms in one station as one robot, each an arm of `robots.arms` with a name and a base.

Joints, limits and shapes of the arms stand one after the other, in the order of the parts; names get that of their part
in front (``left_shoulder_pan``). Kinematics, inverse kinematics and tcp stay each arm's own, in its own base frame;
shapes and the compiled model are in the station's.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path

import mujoco
import numpy as np
from numpy.typing import NDArray

from robolearn.core import BadInput
from robots.chain import Array
from robots.shapes import Piece
from robots.spec import ArmPart, RobotSpec, proprio


@dataclass(frozen=True)
class PairSpec:
    """A robot of two arms.

    Raises:
      BadInput: other than two parts, or names that are none or equal.
    """

    name: str
    parts: tuple[ArmPart, ...]

    def __post_init__(self) -> None:
        names = [part.name for part in self.parts]
        if len(names) != 2 or len(set(names)) != 2 or not all(name.isidentifier() for name in names):
            got = ", ".join(names) or "nothing"
            raise BadInput(f"arms of {self.name}", got=got, expected="two, with names that differ, such as left, right")

    @cached_property
    def slices(self) -> tuple[slice, ...]:
        """The joints of each part among those of the robot."""
        ends = np.cumsum([len(part.robot.joints) for part in self.parts]).tolist()
        return tuple(slice(end - len(part.robot.joints), end) for part, end in zip(self.parts, ends, strict=True))

    # --- one after the other ---------------------------------------------------------------------------------

    @cached_property
    def finger_slices(self) -> tuple[slice, ...]:
        """The joints of the gripper of each part among those of both."""
        ends = np.cumsum([len(part.robot.gripper.joints) for part in self.parts]).tolist()
        return tuple(slice(begin, end) for begin, end in zip([0, *ends], ends, strict=False))

    @property
    def joints(self) -> tuple[str, ...]:
        """(n,) names."""
        return tuple(part.named(name) for part in self.parts for name in part.robot.joints)

    @property
    def home(self) -> tuple[float, ...]:
        """(n,) joint positions [rad]."""
        return tuple(q for part in self.parts for q in part.robot.home)

    @property
    def velocity(self) -> tuple[float, ...]:
        """(n,) limits [rad/s]."""
        return tuple(v for part in self.parts for v in part.robot.velocity)

    @property
    def acceleration(self) -> tuple[float, ...]:
        """(n,) limits [rad/s²]."""
        return tuple(a for part in self.parts for a in part.robot.acceleration)

    @property
    def jerk(self) -> tuple[float, ...]:
        """(n,) limits [rad/s³]."""
        return tuple(j for part in self.parts for j in part.robot.jerk)

    @property
    def lower(self) -> NDArray[np.float64]:
        """(n,) lower joint position limits [rad]."""
        return np.concatenate([part.robot.lower for part in self.parts])

    @property
    def upper(self) -> NDArray[np.float64]:
        """(n,) upper joint position limits [rad]."""
        return np.concatenate([part.robot.upper for part in self.parts])

    @property
    def fingers(self) -> tuple[str, ...]:
        """Names of the joints of the grippers in the compiled model."""
        return tuple(part.named(name) for part in self.parts for name in part.robot.gripper.joints)

    @property
    def action_kind(self) -> str:
        """Default kind of action: joint positions as soon as one of the arms has it so."""
        kinds = [part.robot.action_kind for part in self.parts]
        return kinds[0] if len(set(kinds)) == 1 else "joint_position"

    # --- model and shapes, in the frame of the station -------------------------------------------------------

    @property
    def mjcf(self) -> tuple[Path, ...]:
        """The model files of the arms."""
        return tuple(part.robot.mjcf for part in self.parts)

    def model_spec(self) -> mujoco.MjSpec:
        """The MJCF of both arms, to be added to and compiled."""
        spec = mujoco.MjSpec()
        spec.modelname = self.name
        spec.compiler.degree, spec.compiler.autolimits = False, True
        for part in self.parts:
            half = 0.5 * part.base.yaw
            frame = spec.worldbody.add_frame(pos=part.base.position, quat=[np.cos(half), 0.0, 0.0, np.sin(half)])
            spec.attach(part.robot.model_spec(), frame=frame, prefix=part.named(""))
        return spec

    @cached_property
    def pieces(self) -> tuple[Piece, ...]:
        """Collision shapes of both arms and their tools; those of a base stand in the station."""
        found = []
        for number, (part, joints) in enumerate(zip(self.parts, self.slices, strict=True)):
            for piece in part.robot.pieces:
                body, link, points = part.named(piece.body), piece.link + joints.start, piece.points
                if piece.link == 0:
                    link, points = 0, points @ part.base.rotation.T + np.array(part.base.position)
                group = link if piece.group == piece.link else piece.group + joints.start
                found.append(replace(piece, body=body, link=link, group=group, points=points, arm=number))
        return tuple(found)

    # --- each arm for itself ---------------------------------------------------------------------------------

    def forward(self, q: Array) -> tuple[Array, Array]:
        """(N, 2, 3) [m] and (N, 2, 3, 3) poses of the tcps at `q` (N, n) [rad], in the frame of the station."""
        found = [part.chain.placed.forward(q[:, at]) for part, at in zip(self.parts, self.slices, strict=True)]
        return np.stack([pos for pos, _ in found], axis=1), np.stack([rot for _, rot in found], axis=1)

    def width_of(self, fingers: Array) -> Array:
        """(N, 2) openings [m] from the positions (N, fingers) of the grippers' joints."""
        each = zip(self.parts, self.finger_slices, strict=True)
        return np.stack([part.robot.gripper.width_of(fingers[..., own]) for part, own in each], axis=-1)

    def fingers_of(self, width: Array) -> Array:
        """(N, fingers) positions of the grippers' joints at openings (N, 2) [m]."""
        return np.concatenate([part.robot.fingers_of(width[..., k]) for k, part in enumerate(self.parts)], axis=-1)

    def proprio(self, q: Array, width: Array, tcp_pos: Array, tcp_rot: Array) -> NDArray[np.float32]:
        """(N, n + 20) as `proprio_spec` has it; each tcp in the base frame of its arm, whatever `forward` says."""
        return np.concatenate(
            [
                proprio(q[:, at], width[:, k], *part.robot.chain.forward(q[:, at]))
                for k, (part, at) in enumerate(zip(self.parts, self.slices, strict=True))
            ],
            axis=-1,
        )


AnyRobot = RobotSpec | PairSpec
"""One arm, or two."""
