"""External trackers of metrics, where they are installed: Weights & Biases, Trackio, MLflow.

They get what ``metrics.jsonl`` and TensorBoard get, row by row. The run folder stays the record: a tracker that fails
on its way is let go with a warning, and the training goes on.
"""

from __future__ import annotations

import importlib.util
import logging
import uuid
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from robolearn.core import BadInput
from robolearn.io.json_files import flatten

log = logging.getLogger(__name__)

PROJECT = "robolearn"


class Tracker:
    """A place for metrics; one that fails is let go, and the training goes on.

    Args:
      send: takes a row and ``step=`` control or gradient steps.
      end: is called when everything is logged.
    """

    def __init__(self, name: str, send: Callable[..., Any], end: Callable[[], Any]) -> None:
        self._name, self._send, self._end, self._lost = name, send, end, False

    def log(self, at: int, row: Mapping[str, float]) -> None:
        """Numbers at `at` control or gradient steps."""
        self._try(lambda: self._send(dict(row), step=at))

    def close(self) -> None:
        """Everything is logged."""
        self._try(self._end)
        self._lost = True

    def _try(self, do: Callable[[], Any]) -> None:
        if self._lost:
            return
        try:
            do()
        except Exception as error:  # a network that is gone, a quota that is full
            log.warning("%s takes no more metrics (%s); metrics.jsonl and TensorBoard have them", self._name, error)
            self._lost = True


def _wandb_like(module: Any, path: Path, config: Mapping[str, Any]) -> Tracker:
    """`wandb`, and `trackio`, whose names are the same."""
    more = {}
    if module.__name__ == "wandb":
        # Its own files beside ours, and one run there for one run here, the same each time it is resumed.
        own = uuid.uuid5(uuid.NAMESPACE_URL, path.absolute().as_uri()).hex
        more = {"dir": str(path), "id": own, "resume": "allow"}
    module.init(project=PROJECT, name=path.name, config=dict(config), **more)
    return Tracker(module.__name__, module.log, module.finish)


def _mlflow(module: Any, path: Path, config: Mapping[str, Any]) -> Tracker:
    module.set_experiment(PROJECT)
    module.start_run(run_name=path.name)
    module.log_params({key: str(value)[:500] for key, value in flatten(config).items()})
    return Tracker(module.__name__, module.log_metrics, module.end_run)


TRACKERS: dict[str, Callable[[Any, Path, Mapping[str, Any]], Tracker]] = {
    "wandb": _wandb_like,
    "trackio": _wandb_like,
    "mlflow": _mlflow,
}


def check_tracker(name: str) -> None:
    """Raise `BadInput` unless `name` is ``none`` or a tracker that is installed."""
    if name == "none":
        return
    if name not in TRACKERS:
        raise BadInput("--log", got=name, available=["none", *TRACKERS])
    if importlib.util.find_spec(name) is None:
        installed = [other for other in TRACKERS if importlib.util.find_spec(other) is not None]
        got = f"{name}, which is not installed"
        raise BadInput("--log", got=got, available=["none", *installed], hint=f"pip install {name}")


def open_tracker(name: str, path: Path, config: Mapping[str, Any]) -> Tracker | None:
    """The tracker `name` for the run in `path`; None for ``none``. Raises `BadInput`: it is not installed, or cannot be
    begun: without an account, or without a network."""
    check_tracker(name)
    if name == "none":
        return None
    try:
        return TRACKERS[name](importlib.import_module(name), path, config)
    except Exception as error:  # of whatever kind they have
        text = " ".join(str(error).split())
        raise BadInput(f"--log {name} could not begin: {text}", hint="--log none goes without") from error
