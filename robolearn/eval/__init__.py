"""Evaluation: rollouts of a fixed number of episodes, intervals, A-versus-B verdicts, videos, reports.

`report`, `plots` and `video` are imported by name where they are needed, since they bring matplotlib and PyAV along.
"""

from robolearn.eval.comparison import Gain, compare, split_gain
from robolearn.eval.evaluation import Evaluation, evaluate
from robolearn.eval.intervals import (
    Estimate,
    SeedEstimate,
    Success,
    bootstrap_mean,
    clopper_pearson,
    least_of,
    over_seeds,
    over_tasks,
    wilson,
)
from robolearn.eval.verdict import Verdict, corrected

__all__ = [
    "Estimate",
    "Evaluation",
    "Gain",
    "SeedEstimate",
    "Success",
    "Verdict",
    "bootstrap_mean",
    "clopper_pearson",
    "compare",
    "corrected",
    "evaluate",
    "least_of",
    "over_seeds",
    "over_tasks",
    "split_gain",
    "wilson",
]
