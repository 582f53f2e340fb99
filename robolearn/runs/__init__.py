"""Run folders: configuration, metrics, exact training state, the shared training loop. Knows only `core`.

Light names are here; what needs torch is imported from its file: `robolearn.runs.checkpoint` (training state),
`robolearn.runs.packing` (optimiser and random numbers as tensors), `robolearn.runs.loop` (the loop).
"""

from robolearn.runs.progress import Progress
from robolearn.runs.run import Run, RunInfo, find_runs, inspect_run, is_run, read_metrics

__all__ = ["Progress", "Run", "RunInfo", "find_runs", "inspect_run", "is_run", "read_metrics"]
