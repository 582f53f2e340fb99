"""Imitation: demonstrations → policy."""
