from __future__ import annotations

from importlib import import_module
from typing import Any


def get_class(path: str) -> Any:
    module, _, name = path.rpartition(".")
    return getattr(import_module(module), name)


def instantiate(config: Any) -> Any:
    """The object of a config with ``_target_``, and of those in it."""
    if isinstance(config, dict) and "_target_" in config:
        return get_class(config["_target_"])(**{k: instantiate(v) for k, v in config.items() if k != "_target_"})
    return config
