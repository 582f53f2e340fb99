"""Trials that count: a plan before, randomised blocks, every outcome, a verdict at any time."""
