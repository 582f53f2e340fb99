"""Episodes as a rerun recording: images, vectors, actions, interventions, on the timelines of the set.

frame     the index through the set
episode   the index of the episode
step      the index within the episode
time      seconds since the first frame shown
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from robolearn.core import BadInput, Interface
from robolearn.core.installation import install_command
from robolearn.data.convert.source import Progress, drafts, interface_with_images
from robolearn.data.reading.reader import Dataset
from robolearn.data.video.segments import Images, frames

JPEG_QUALITY = 85


def save(dataset: Dataset, episodes: Sequence[int], path: Path, progress: Progress | None = None) -> int:
    """Write `episodes` to the rerun file `path`; returns the number of frames. Raises `BadInput`: rerun is not
    installed, or a video does not decode."""
    rr = _rerun()
    interface = interface_with_images(dataset)
    recording = rr.RecordingStream("robolearn_dataset", recording_id=dataset.path.name)
    recording.save(str(path), default_blueprint=_blueprint(interface))
    shown = 0
    try:
        for number, (index, draft) in enumerate(zip(episodes, drafts(dataset, episodes), strict=True)):
            length = len(draft)
            step = np.arange(length)
            times = {
                "frame": rr.TimeColumn("frame", sequence=int(dataset.starts[index]) + step),
                "episode": rr.TimeColumn("episode", sequence=np.full(length, index)),
                "step": rr.TimeColumn("step", sequence=step),
                "time": rr.TimeColumn("time", duration=(shown + step) / interface.control_hz),
            }
            episode = draft.episode
            vectors = {**episode.observation, "action": episode.action, "reward": episode.reward}
            if episode.intervention is not None:
                vectors["is_intervention"] = episode.intervention
            specs = {**interface.observation, "action": interface.action}
            for key, values in vectors.items():
                names = specs[key].names if key in specs else ()
                _vector(rr, recording, key, names, values, times)
            for name, values in episode.stamps.items():
                # Raw clocks are large numbers: what matters is how they run against the frames.
                late = values - values[0] - step / interface.control_hz
                _vector(rr, recording, f"stamps/{name}", ("lag_s",), late, times)
            outcome = ("success" if episode.success else "no success") if dataset.outcomes else "outcome unknown"
            _log_at(rr, recording, int(dataset.starts[index]), index, 0, shown / interface.control_hz)
            recording.log("episode", rr.TextLog(f"episode {index}: {episode.task} ({length} steps, {outcome})"))
            for key, images in draft.images.items():
                _images(rr, recording, key, images, int(dataset.starts[index]), index, shown, interface.control_hz)
            shown += length
            if progress is not None:
                progress(number + 1, {})
    finally:
        recording.flush()
        recording.disconnect()
    return shown


def _vector(rr: Any, recording: Any, key: str, names: Sequence[str], values: NDArray, times: Mapping[str, Any]) -> None:
    """One curve per component, below the entity `key`."""
    matrix = np.asarray(values, np.float64).reshape(len(values), -1)
    for i in range(matrix.shape[1]):
        name = names[i] if i < len(names) else str(i)
        path = f"{key}/{name}" if matrix.shape[1] > 1 or names else key
        recording.send_columns(path, indexes=list(times.values()), columns=rr.Scalars.columns(scalars=matrix[:, i]))


def _images(rr: Any, recording: Any, key: str, images: Images, first: int, episode: int, shown: int, hz: float) -> None:
    path = key.replace(".", "/", 1)
    for t, image in enumerate(frames(images)):
        _log_at(rr, recording, first + t, episode, t, (shown + t) / hz)
        recording.log(path, rr.Image(image).compress(jpeg_quality=JPEG_QUALITY))


def _log_at(rr: Any, recording: Any, frame: int, episode: int, step: int, seconds: float) -> None:
    recording.set_time("frame", sequence=frame)
    recording.set_time("episode", sequence=episode)
    recording.set_time("step", sequence=step)
    recording.set_time("time", duration=seconds)


def _blueprint(interface: Interface) -> Any:
    """Cameras above, curves below."""
    import rerun.blueprint as rrb

    cameras = [key for key in interface.observation if key.startswith("images.")]
    curves = [key for key in interface.observation if key not in cameras]
    views = [rrb.TimeSeriesView(origin=f"/{key}", name=key) for key in [*curves, "action", "stamps"]]
    plots = rrb.Tabs(*views) if not cameras else rrb.Horizontal(*views[:2], rrb.Tabs(*views[2:]))
    if not cameras:
        return rrb.Blueprint(rrb.Vertical(*views[:-1], rrb.TextLogView(origin="/episode", name="episodes")))
    pictures = [rrb.Spatial2DView(origin=f"/{key.replace('.', '/', 1)}", name=key) for key in cameras]
    return rrb.Blueprint(rrb.Vertical(rrb.Horizontal(*pictures), plots))


def _rerun() -> Any:
    try:
        import rerun
    except ImportError:
        raise BadInput("view", got="no rerun", expected="it", hint=install_command("console")) from None
    return rerun
