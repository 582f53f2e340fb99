"""Episodes on disk (LeRobotDataset v3.0), windows for training, statistics. Does not import policies."""

from typing import TYPE_CHECKING, Any

from robolearn.data.reading.reader import Dataset
from robolearn.data.video.encoder import VideoConfig
from robolearn.data.writing.writer import EpisodeWriter

if TYPE_CHECKING:
    from robolearn.data.windows import TrainingBatch, Windows

__all__ = ["Dataset", "EpisodeWriter", "TrainingBatch", "VideoConfig", "Windows"]


def __getattr__(name: str) -> Any:
    # Windows are tensors: recording and reading episodes does not import torch.
    if name in ("TrainingBatch", "Windows"):
        from robolearn.data import windows

        return getattr(windows, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
