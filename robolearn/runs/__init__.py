"""Run folders: configuration, metrics, exact training state, the shared training loop. Imports only `io` and `core`.

Light names are here; what needs torch is imported from its file: `robolearn.runs.checkpoint` (training state),
`robolearn.runs.checkpoint` (the optimiser as tensors), `robolearn.runs.loop` (the loop).
"""

from robolearn.runs.progress import Progress
from robolearn.runs.run import Run, RunInfo, find_runs, inspect_run, is_run, read_metrics

__all__ = ["Progress", "Run", "RunInfo", "find_runs", "inspect_run", "is_run", "read_metrics"]
