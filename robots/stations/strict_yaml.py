"""YAML as a contract needs it: safe, within limits, and strict where YAML is not."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import yaml

from robolearn.core.errors import BadInput

LARGEST = 1_000_000  # [bytes]; a contract has a few thousand
MOST = 20_000  # values, those behind aliases counted each time: nine lines of aliases of aliases are a billion


class _Loader(yaml.SafeLoader):
    """A key that stands twice would silently win over the first."""

    def get_single_data(self) -> Any:
        node = self.get_single_node()
        if node is None:
            return None
        if (values := _values(node, {})) > MOST:
            raise yaml.YAMLError(f"{values:,} values, more than {MOST:,}")
        return self.construct_document(node)

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        seen = set()
        for key, _ in node.value:
            if not isinstance(key, yaml.ScalarNode):
                continue
            if key.value in seen:
                raise yaml.constructor.ConstructorError(
                    None, None, f"the key {key.value!r} stands there twice", key.start_mark
                )
            seen.add(key.value)
        return super().construct_mapping(node, deep)


def read_yaml(path: Path) -> Any:
    """The content of the file `path`. Raises `BadInput`: it is no YAML, or larger or deeper than a contract; the
    message is one line and names the line; `OSError`: it cannot be read."""
    with path.open("rb") as file:
        content = file.read(LARGEST + 1)
    if len(content) > LARGEST:
        raise BadInput(path.name, got=f"more than {LARGEST:,} bytes", expected="a contract")
    try:
        return yaml.load(content.decode("utf-8"), _Loader)
    except yaml.MarkedYAMLError as error:
        line = f" line {error.problem_mark.line + 1}" if error.problem_mark else ""
        raise BadInput(f"{path.name}{line}", got=error.problem, expected="YAML") from error
    except RecursionError:
        raise BadInput(path.name, got="nested too deeply", expected="YAML") from None
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise BadInput(path.name, got=str(error).splitlines()[0], expected="YAML") from error


def _values(node: yaml.Node, known: dict[int, int]) -> int:
    """Number of values that `node` stands for, aliases followed; `known` caches the counts."""
    if isinstance(node, yaml.ScalarNode):
        return 1
    if id(node) not in known:
        known[id(node)] = MOST + 1  # what contains itself never ends
        parts = [part for pair in node.value for part in (pair if isinstance(pair, tuple) else (pair,))]
        known[id(node)] = 1 + sum(_values(part, known) for part in parts)
    return known[id(node)]
