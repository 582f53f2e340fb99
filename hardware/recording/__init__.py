"""Recording demonstrations: teleoperation whose steps are stored, without ROS and on an injected clock."""

from hardware.recording.recording import Recording
from hardware.recording.rollouts import RolloutRecording
from hardware.recording.session import Session, Storage, StorageThread, Writer, stamp_names

__all__ = ["Recording", "RolloutRecording", "Session", "Storage", "StorageThread", "Writer", "stamp_names"]
