"""Policies around another policy: best of n, noise-steered, delayed, prompted."""
