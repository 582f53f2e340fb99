"""Quality of demonstrations: measures, one score per episode, and what to drop.

`assess(Demonstrations.of(dataset))` measures, scores and ranks. `comparison` and `motion` hold the measures.
"""

from robolearn.data.quality.demonstrations import Demonstrations
from robolearn.data.quality.score import RULES, EpisodeScore, QualityReport, assess

__all__ = ["RULES", "Demonstrations", "EpisodeScore", "QualityReport", "assess"]
