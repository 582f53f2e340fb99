"""How good demonstrations are: one measure per file, one score per episode, and what to drop.

`assess(Demonstrations.of(dataset))` measures, scores and ranks; the rule of the score stands in `score`.
"""

from robolearn.data.quality.demonstrations import Demonstrations
from robolearn.data.quality.report import Quality, assess
from robolearn.data.quality.score import RULES, Judgement

__all__ = ["RULES", "Demonstrations", "Judgement", "Quality", "assess"]
