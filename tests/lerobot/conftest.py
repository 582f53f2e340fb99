"""These tests need LeRobot, which lives in an environment of its own: `make test-lerobot`."""

from __future__ import annotations

import importlib.util

collect_ignore_glob = [] if importlib.util.find_spec("lerobot") else ["test_*.py"]
