"""Tiny π0 and π0.5, as within `saved_pi.tiny`, in programs that a test starts with this folder in PYTHONPATH."""

from __future__ import annotations

import sys
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder
from pathlib import Path
from types import ModuleType
from typing import Any

KINDS = {f"lerobot.policies.{kind}.modeling_{kind}": kind for kind in ("pi0", "pi05")}


class SmallerWhenImported(MetaPathFinder):
    """LeRobot's modules of these policies with smaller networks; a program that never imports them imports nothing of
    LeRobot's."""

    def find_spec(self, name: str, path: Any, target: ModuleType | None = None) -> ModuleSpec | None:
        if name not in KINDS or (spec := PathFinder.find_spec(name, path)) is None or spec.loader is None:
            return None
        execute = spec.loader.exec_module

        def executed(module: ModuleType) -> None:
            execute(module)
            sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
            from saved_pi import made_smaller

            for attribute, value in made_smaller(module).items():
                setattr(module, attribute, value)

        loader: Loader = spec.loader
        loader.exec_module = executed
        return spec


sys.meta_path.insert(0, SmallerWhenImported())
