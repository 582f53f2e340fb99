"""Sources of rewards: the task, the person's success key, a critic of progress, or anything behind `RewardModel`.

Knows episodes and the protocols of core; no loop that learns from them.
"""
