"""Identification of an arm's dynamics from its motion: rollouts of its model, least squares, intervals."""
