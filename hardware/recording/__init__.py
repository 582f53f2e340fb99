"""Recording demonstrations: teleoperation whose steps are stored, without ROS and on an injected clock."""

from hardware.recording.recording import Recording
from hardware.recording.session import Session, Storage, StorageThread, Writer, stamp_names

__all__ = ["Recording", "Session", "Storage", "StorageThread", "Writer", "stamp_names"]
