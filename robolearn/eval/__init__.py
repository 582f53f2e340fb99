"""Evaluation: rollouts of a fixed number of episodes, intervals, A-versus-B verdicts, videos, reports.

`report`, `plots` and `video` are imported by name where they are needed, since they bring matplotlib and PyAV along.
"""

from robolearn.eval.intervals import Estimate, Success, bootstrap_mean, clopper_pearson, wilson
from robolearn.eval.rollout import Evaluation, evaluate
from robolearn.eval.verdict import Verdict, compare

__all__ = [
    "Estimate",
    "Evaluation",
    "Success",
    "Verdict",
    "bootstrap_mean",
    "clopper_pearson",
    "compare",
    "evaluate",
    "wilson",
]
