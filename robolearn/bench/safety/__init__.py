"""Verification of the safety filter: fuzzed commands, and collisions by an independent reference."""
