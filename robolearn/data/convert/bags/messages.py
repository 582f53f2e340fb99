"""Arrays → ROS messages, without ROS: the types that `rosbags` brings."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from robolearn.core import BadInput
from robolearn.data.convert.bags.recording import rosbags
from robots.stations import COMPRESSED, FLOATS, IMAGE, JOINT_STATE, POSE, STRING, TRAJECTORY, WRENCH


class Messages:
    """Makes messages.

    Attributes:
      store: the types, and how they are serialized.
    """

    def __init__(self) -> None:
        _, typesys = rosbags()
        self.store = typesys.get_typestore(typesys.Stores.LATEST)

    def _new(self, kind: str, **fields: Any) -> Any:
        return self.store.types[kind](**fields)

    def header(self, stamp_ns: int, frame: str = "") -> Any:
        """A header; a stamp of 0 stands for none."""
        sec, nanosec = divmod(stamp_ns, 1_000_000_000)
        stamp = self._new("builtin_interfaces/msg/Time", sec=sec, nanosec=nanosec)
        return self._new("std_msgs/msg/Header", stamp=stamp, frame_id=frame)

    def text(self, words: str) -> Any:
        """A String."""
        return self._new(STRING, data=words)

    def joint_state(self, names: Sequence[str], positions: ArrayLike, stamp_ns: int) -> Any:
        """Names and positions as a JointState."""
        none = np.zeros(0)
        return self._new(
            JOINT_STATE,
            header=self.header(stamp_ns),
            name=list(names),
            position=np.array(positions, np.float64),
            velocity=none,
            effort=none,
        )

    def torques(self, names: Sequence[str], efforts: ArrayLike, stamp_ns: int) -> Any:
        """Names and external torques [Nm] as a JointState."""
        message = self.joint_state(names, [], stamp_ns)
        message.effort = np.array(efforts, np.float64)
        return message

    def wrench(self, values: ArrayLike, stamp_ns: int, frame: str = "base") -> Any:
        """Force [N] and moment [Nm], (6,), as a WrenchStamped."""
        numbers = [float(value) for value in np.asarray(values)]
        force, moment = (
            self._new("geometry_msgs/msg/Vector3", **dict(zip("xyz", part, strict=True)))
            for part in (numbers[:3], numbers[3:])
        )
        wrench = self._new("geometry_msgs/msg/Wrench", force=force, torque=moment)
        return self._new(WRENCH, header=self.header(stamp_ns, frame), wrench=wrench)

    def floats(self, values: ArrayLike) -> Any:
        """A Float64MultiArray."""
        layout = self._new("std_msgs/msg/MultiArrayLayout", dim=[], data_offset=0)
        return self._new(FLOATS, layout=layout, data=np.array(values, np.float64))

    def trajectory(self, names: Sequence[str], positions: ArrayLike, reach_s: float) -> Any:
        """A trajectory of one point, to be reached in `reach_s` from now (its stamp is 0, which means now)."""
        sec, nanosec = divmod(round(reach_s * 1e9), 1_000_000_000)
        none = np.zeros(0)
        point = self._new(
            "trajectory_msgs/msg/JointTrajectoryPoint",
            positions=np.array(positions, np.float64),
            velocities=none,
            accelerations=none,
            effort=none,
            time_from_start=self._new("builtin_interfaces/msg/Duration", sec=sec, nanosec=nanosec),
        )
        return self._new(TRAJECTORY, header=self.header(0), joint_names=list(names), points=[point])

    def pose(self, position: NDArray, quaternion: NDArray, stamp_ns: int, frame: str = "base") -> Any:
        """A PoseStamped; `quaternion` is wxyz."""
        x, y, z = (float(value) for value in position)
        w, i, j, k = (float(value) for value in quaternion)
        pose = self._new(
            "geometry_msgs/msg/Pose",
            position=self._new("geometry_msgs/msg/Point", x=x, y=y, z=z),
            orientation=self._new("geometry_msgs/msg/Quaternion", x=i, y=j, z=k, w=w),
        )
        return self._new(POSE, header=self.header(stamp_ns, frame), pose=pose)

    def image(self, kind: str, picture: NDArray[np.uint8], stamp_ns: int) -> Any:
        """(H, W, 3) rgb as a raw Image, or as a CompressedImage without loss (PNG)."""
        import cv2

        header = self.header(stamp_ns)
        height, width = picture.shape[:2]
        if kind == IMAGE:
            return self._new(
                IMAGE,
                header=header,
                height=height,
                width=width,
                encoding="rgb8",
                is_bigendian=0,
                step=3 * width,
                data=np.ascontiguousarray(picture).reshape(-1),
            )
        done, data = cv2.imencode(".png", picture[..., ::-1])
        if not done:
            raise BadInput("picture", got=f"shape {picture.shape}", expected="(H, W, 3) uint8")
        return self._new(COMPRESSED, header=header, format="rgb8; png compressed bgr8", data=data.reshape(-1))
