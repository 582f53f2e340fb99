"""External trackers of metrics, where they are installed: Weights & Biases, Trackio, MLflow.

They get what ``metrics.jsonl`` and TensorBoard get, row by row. The run folder stays the record: a tracker that fails
on its way is let go with a warning, and the training goes on.
"""

from __future__ import annotations

import importlib.util
import logging
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Protocol

from robolearn.core import BadInput

log = logging.getLogger(__name__)

PROJECT = "robolearn"


class Tracker(Protocol):
    """A place for metrics."""

    def log(self, at: int, row: Mapping[str, float]) -> None:
        """Numbers at `at` control or gradient steps."""
        ...

    def close(self) -> None:
        """Everything is logged."""
        ...


class _WandbLike:
    """`wandb`, and `trackio`, whose names are the same."""

    def __init__(self, module: Any, path: Path, config: Mapping[str, Any]) -> None:
        self._module = module
        module.init(project=PROJECT, name=path.name, config=dict(config), **self._more(path))

    def _more(self, path: Path) -> dict[str, Any]:
        # Its own files beside ours, and one run there for one run here, however often it is resumed.
        return {"dir": str(path), "id": _id(path), "resume": "allow"} if self._module.__name__ == "wandb" else {}

    def log(self, at: int, row: Mapping[str, float]) -> None:
        self._module.log(dict(row), step=at)

    def close(self) -> None:
        self._module.finish()


class _Mlflow:
    def __init__(self, module: Any, path: Path, config: Mapping[str, Any]) -> None:
        self._module = module
        module.set_experiment(PROJECT)
        module.start_run(run_name=path.name)
        module.log_params({key: str(value)[:500] for key, value in _flat(config).items()})

    def log(self, at: int, row: Mapping[str, float]) -> None:
        self._module.log_metrics(dict(row), step=at)

    def close(self) -> None:
        self._module.end_run()


TRACKERS: dict[str, Callable[[Any, Path, Mapping[str, Any]], Tracker]] = {
    "wandb": _WandbLike,
    "trackio": _WandbLike,
    "mlflow": _Mlflow,
}


def check_tracker(name: str) -> None:
    """Raise `BadInput` unless `name` is ``none`` or a tracker that is installed."""
    if name == "none":
        return
    if name not in TRACKERS:
        raise BadInput("--log", got=name, available=["none", *TRACKERS])
    if importlib.util.find_spec(name) is None:
        installed = [other for other in TRACKERS if importlib.util.find_spec(other) is not None]
        raise BadInput(
            "--log", got=f"{name}, which is not installed", available=["none", *installed], hint=f"pip install {name}"
        )


def open_tracker(name: str, path: Path, config: Mapping[str, Any]) -> Tracker | None:
    """The tracker `name` for the run in `path`; None for ``none``.

    Raises:
      BadInput: it is not installed, or cannot be begun: without an account, or without a network.
    """
    check_tracker(name)
    if name == "none":
        return None
    try:
        return _Careful(TRACKERS[name](importlib.import_module(name), path, config), name)
    except Exception as error:  # of whatever kind they have
        text = " ".join(str(error).split())
        raise BadInput(f"--log {name} could not begin: {text}", hint="--log none goes without") from error


class _Careful:
    """A tracker whose failures end it, not the training."""

    def __init__(self, tracker: Tracker, name: str) -> None:
        self._tracker: Tracker | None = tracker
        self._name = name

    def log(self, at: int, row: Mapping[str, float]) -> None:
        self._try(lambda tracker: tracker.log(at, row))

    def close(self) -> None:
        self._try(lambda tracker: tracker.close())
        self._tracker = None

    def _try(self, do: Callable[[Tracker], None]) -> None:
        if self._tracker is None:
            return
        try:
            do(self._tracker)
        except Exception as error:  # a network that is gone, a quota that is full
            log.warning("%s takes no more metrics (%s); metrics.jsonl and TensorBoard have them", self._name, error)
            self._tracker = None


def _id(path: Path) -> str:
    """One for the run in `path`, the same each time it is resumed."""
    import uuid

    return uuid.uuid5(uuid.NAMESPACE_URL, path.absolute().as_uri()).hex


def _flat(tree: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    found: dict[str, Any] = {}
    for key, value in tree.items():
        found |= _flat(value, f"{prefix}{key}.") if isinstance(value, Mapping) else {f"{prefix}{key}": value}
    return found
