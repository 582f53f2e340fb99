"""Episodes on disk (LeRobotDataset v3.0), windows for training, statistics. Knows nothing of policies."""

from robolearn.data.reader import Dataset
from robolearn.data.video import VideoConfig
from robolearn.data.windows import Batch, Windows
from robolearn.data.writer import EpisodeWriter

__all__ = ["Batch", "Dataset", "EpisodeWriter", "VideoConfig", "Windows"]
