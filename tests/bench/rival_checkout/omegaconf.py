"""As much of OmegaConf as the configs of checkouts need, for tests without it: dotted names and ``${…}``."""

from __future__ import annotations

import os
import re
from typing import Any

import yaml

RESOLVERS: dict[str, Any] = {}


class Config(dict):
    """A mapping whose keys are attributes, too."""

    def __getattr__(self, name: str) -> Any:
        try:
            return self[name]
        except KeyError:
            raise AttributeError(name) from None


def made(value: Any) -> Any:
    if isinstance(value, dict):
        return Config({key: made(one) for key, one in value.items()})
    if isinstance(value, str) and re.fullmatch(r"-?[\d.]+e-?\d+", value):
        return float(value)  # YAML 1.1 wants a dot in it
    return [made(one) for one in value] if isinstance(value, list) else value


def looked_up(root: Config, text: str) -> Any:
    name, _, rest = text.partition(":")
    if name == "oc.env":
        return os.environ[rest]
    if name in RESOLVERS:
        return RESOLVERS[name](filled(root, rest.strip("'")))
    value: Any = root
    for part in text.split("."):
        value = value[part]
    return filled(root, value)


def filled(root: Config, value: Any) -> Any:
    while isinstance(value, str) and (found := re.search(r"\$\{([^${}]*)\}", value)):
        one = looked_up(root, found[1])
        value = one if found[0] == value else value[: found.start()] + str(one) + value[found.end() :]
    return value


class OmegaConf:
    @staticmethod
    def load(path: str) -> Config:
        with open(path) as file:
            return made(yaml.safe_load(file))

    @staticmethod
    def update(config: Config, key: str, value: Any, force_add: bool = False) -> None:
        *parts, last = key.split(".")
        for part in parts:
            config = config.setdefault(part, Config())
        config[last] = made(value)

    @staticmethod
    def register_new_resolver(name: str, function: Any, replace: bool = False) -> None:
        RESOLVERS[name] = function

    @staticmethod
    def resolve(config: Config) -> None:
        def walk(value: Any) -> Any:
            if isinstance(value, dict):
                for key in value:
                    value[key] = walk(value[key])
                return value
            if isinstance(value, list):
                return [walk(one) for one in value]
            # The pattern of a resolver with quotes holds references of its own.
            while isinstance(value, str) and "${" in value:
                value = filled(config, value)
            return value

        walk(config)
