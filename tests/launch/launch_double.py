"""A test double of the names of ROS's `launch` and `launch_ros` that our launch files use, for machines without them.

It is stricter than the original: a name or argument that is not here fails. What it does with those that are here
follows launch 3.7 and launch_ros 0.28: entities are visited in order, an argument is known from the place where it is
declared on, parameters reach a node in a file under its full name. Processes are written down instead of started.
"""

from __future__ import annotations

import importlib.util
import os
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import ModuleType
from typing import Any

import yaml


class SubstitutionFailure(Exception):
    """A substitution has no value."""


@dataclass(frozen=True)
class Started:
    """One process that launch would have started."""

    executable: str
    node: str  # full name
    command: list[str]
    parameters: dict[str, Any]
    remappings: dict[str, str]
    shutdown: str | None  # the reason, when its end ends everything
    sigterm_timeout: float  # after SIGINT [s]


@dataclass
class LaunchContext:
    """Under which prefix packages are, where parameter files go, the arguments, and what was started and declared."""

    prefix: Path
    folder: Path
    configurations: dict[str, str] = field(default_factory=dict)
    declared: dict[str, DeclareLaunchArgument] = field(default_factory=dict)
    started: list[Started] = field(default_factory=list)
    argv: list[str] = field(default_factory=list)

    def perform(self, value: Any) -> str:
        """A text, a substitution, or a list of both, as text."""
        if isinstance(value, (list, tuple)):
            return "".join(self.perform(part) for part in value)
        return value if isinstance(value, str) else value.perform(self)


def run(file: Path, arguments: Mapping[str, str], prefix: Path, folder: Path) -> LaunchContext:
    """What ``ros2 launch <file> <name>:=<value> …`` would do."""
    context = LaunchContext(prefix, folder, dict(arguments), argv=[f"{k}:={v}" for k, v in arguments.items()])
    PythonLaunchDescriptionSource(str(file)).description().visit(context)
    return context


# --- launch --------------------------------------------------------------------------------------------------


class LaunchDescription:
    """It is an entity, too: one may stand in another."""

    def __init__(self, initial_entities: Iterable[Any]) -> None:
        self.entities = list(initial_entities)

    def visit(self, context: LaunchContext) -> None:
        for entity in self.entities:
            condition = getattr(entity, "condition", None)
            if condition is None or condition.evaluate(context):
                entity.visit(context)

    def get_launch_arguments(self) -> list[DeclareLaunchArgument]:
        found: list[DeclareLaunchArgument] = []
        for entity in self.entities:
            if isinstance(entity, DeclareLaunchArgument):
                found.append(entity)
            elif isinstance(entity, IncludeLaunchDescription):  # whatever its condition
                found += entity.source.description().get_launch_arguments()
            elif isinstance(entity, LaunchDescription):
                found += entity.get_launch_arguments()
        return found


class OpaqueFunction:
    def __init__(self, *, function: Callable[[LaunchContext], None]) -> None:
        self.function = function

    def visit(self, context: LaunchContext) -> None:
        assert self.function(context) is None


class DeclareLaunchArgument:
    def __init__(self, name: str, *, default_value: Any = None, description: str) -> None:
        self.name, self.default_value, self.description = name, default_value, description

    def visit(self, context: LaunchContext) -> None:
        context.declared[self.name] = self
        if self.name in context.configurations:
            return
        if self.default_value is None:
            raise RuntimeError(f"missing required argument '{self.name}' (description: '{self.description}')")
        context.configurations[self.name] = context.perform(self.default_value)


class IncludeLaunchDescription:
    def __init__(self, launch_description_source: PythonLaunchDescriptionSource, *, condition: Any = None) -> None:
        self.source, self.condition = launch_description_source, condition

    def visit(self, context: LaunchContext) -> None:
        self.source.description().visit(context)


class PythonLaunchDescriptionSource:
    def __init__(self, launch_file_path: str) -> None:
        self.path = launch_file_path

    def description(self) -> LaunchDescription:
        spec = importlib.util.spec_from_file_location("python_launch_file", self.path)
        assert spec is not None and spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        return module.generate_launch_description()


class Shutdown:
    def __init__(self, *, reason: str) -> None:
        self.reason = reason


class IfCondition:
    def __init__(self, predicate_expression: Any) -> None:
        self.expression = predicate_expression

    def evaluate(self, context: LaunchContext) -> bool:
        value = context.perform(self.expression).strip().lower()
        assert value in ("true", "1", "false", "0"), f"a condition is true or false, not {value!r}"
        return value in ("true", "1")


class UnlessCondition(IfCondition):
    def evaluate(self, context: LaunchContext) -> bool:
        return not super().evaluate(context)


class LaunchConfiguration:
    def __init__(self, variable_name: str) -> None:
        self.name = variable_name

    def perform(self, context: LaunchContext) -> str:
        if self.name not in context.configurations:
            raise SubstitutionFailure(f"launch configuration '{self.name}' does not exist")
        return context.configurations[self.name]


class EqualsSubstitution:
    def __init__(self, left: Any, right: Any) -> None:
        self.left, self.right = left, right

    def perform(self, context: LaunchContext) -> str:
        return str(context.perform(self.left) == context.perform(self.right)).lower()


class OrSubstitution:
    def __init__(self, left: Any, right: Any) -> None:
        self.left, self.right = left, right

    def perform(self, context: LaunchContext) -> str:
        return str(any(context.perform(one).lower() in ("true", "1") for one in (self.left, self.right))).lower()


# --- launch_ros ----------------------------------------------------------------------------------------------


class ParameterValue:
    def __init__(self, value: Any, *, value_type: type) -> None:
        self.value, self.type = value, value_type

    def evaluate(self, context: LaunchContext) -> Any:
        text = context.perform(self.value)
        value = text if self.type is str else yaml.safe_load(text)
        assert type(value) is self.type, f"{text!r} is no {self.type.__name__}"
        return value


class Node:
    def __init__(
        self,
        *,
        package: str,
        executable: str,
        namespace: Any,
        name: str,
        parameters: list[dict[str, Any]],
        output: str,
        remappings: Iterable[tuple[Any, Any]] = (),
        on_exit: Any = None,
        sigterm_timeout: str = "5",
        condition: IfCondition | None = None,
    ) -> None:
        self.condition, self.sigterm_timeout = condition, float(sigterm_timeout)
        assert output == "screen", "what a node says belongs on the screen"
        self.package, self.executable, self.namespace, self.name = package, executable, namespace, name
        self.parameters, self.remappings, self.on_exit = parameters, remappings, on_exit

    def visit(self, context: LaunchContext) -> None:
        if self.condition is not None and not self.condition.evaluate(context):
            return
        program = context.prefix / "lib" / self.package / self.executable
        if not os.access(program, os.X_OK):
            raise SubstitutionFailure(f"executable '{self.executable}' not found on the libexec directory")
        parameters = {
            key: value.evaluate(context) if isinstance(value, ParameterValue) else value
            for group in self.parameters
            for key, value in group.items()
        }
        remappings = {context.perform(old): context.perform(new) for old, new in self.remappings}
        namespace = f"/{context.perform(self.namespace)}"
        node = f"{namespace}/{self.name}"
        file = context.folder / f"{self.name}.yaml"
        file.write_text(yaml.safe_dump({node: {"ros__parameters": parameters}}), encoding="utf-8")
        command = [str(program), "--ros-args"]
        command += ["-r", f"__node:={self.name}", "-r", f"__ns:={namespace}", "--params-file", str(file)]
        command += [word for old, new in remappings.items() for word in ("-r", f"{old}:={new}")]
        reason = (self.on_exit.reason if self.on_exit else None) or None
        made = Started(self.executable, node, command, parameters, remappings, reason, self.sigterm_timeout)
        context.started.append(made)


def modules() -> dict[str, ModuleType]:
    """The double under the names by which launch files import it."""
    names = {
        "launch": [LaunchContext, LaunchDescription],
        "launch.actions": [DeclareLaunchArgument, IncludeLaunchDescription, OpaqueFunction, Shutdown],
        "launch.conditions": [IfCondition, UnlessCondition],
        "launch.launch_description_sources": [PythonLaunchDescriptionSource],
        "launch.substitutions": [EqualsSubstitution, LaunchConfiguration, OrSubstitution],
        "launch_ros": [],
        "launch_ros.actions": [Node],
        "launch_ros.parameter_descriptions": [ParameterValue],
    }
    made = {}
    for name, things in names.items():
        made[name] = ModuleType(name)
        for thing in things:
            setattr(made[name], thing.__name__, thing)
    return made
