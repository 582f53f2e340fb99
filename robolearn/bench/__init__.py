"""Benchmarks, fault injection, fuzzing, driver emulators and proofs: verification of the rest."""
