"""Worlds in an interpreter of their own: the far side, and the pools that talk to it."""
