"""Sources of rewards: the task itself, the person's success key, or anything behind `RewardModel`.

Knows episodes and the protocols of core; no loop that learns from them.
"""
