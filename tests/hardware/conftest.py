"""For tests of the real side."""

from __future__ import annotations

import gc

import pytest


@pytest.fixture(scope="module", autouse=True)
def small_heap() -> None:
    """What earlier tests left is not looked through while nodes run in this process.

    A collection of all of it stands still for longer than the safety filter lets a joint state be old. Nodes that run
    as programs do the same (`process.spin`).
    """
    gc.collect()
    gc.freeze()
