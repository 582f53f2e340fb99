"""Evaluation: rollouts of a fixed number of episodes, intervals, A-versus-B verdicts, videos, reports."""
