"""Launch descriptions made from the nodes' parameters: their arguments, defaults, descriptions and types.

Loaded by path, not imported: ``ros2`` runs with the system's Python, which sees the prefix that robolearn is installed
in (AMENT_PREFIX_PATH) but not its packages. Launch files therefore import nothing but ROS's own.
"""

import atexit
import difflib
import importlib.util
import logging
import os
import sys
from collections.abc import Mapping, Sequence
from dataclasses import fields
from pathlib import Path
from types import ModuleType
from typing import Any

from launch import LaunchContext, LaunchDescription
from launch.actions import DeclareLaunchArgument, IncludeLaunchDescription, OpaqueFunction, Shutdown
from launch.launch_description_sources import PythonLaunchDescriptionSource
from launch.substitutions import LaunchConfiguration
from launch_ros.actions import Node
from launch_ros.parameter_descriptions import ParameterValue

NAMESPACE = "of our nodes: left/robolearn for a contract with the namespace left"
ARGUMENTS = {"contract": "robot"}  # parameter → what launch files and commands call it
TELEOP = {"device": "teleop"}  # the same, of nodes that an operator's device belongs to
FORMER = {"device": ("teleop", "the former name of teleop")}  # aliases of their arguments


def node_parameters() -> ModuleType:
    """The module `hardware.node_parameters`, installed beside the launch files or in a checkout; of copies of launch
    files elsewhere that of the installation."""
    here, name = Path(__file__), "node_parameters"
    prefixes = os.environ.get("AMENT_PREFIX_PATH", "").split(os.pathsep)
    places = (here.parents[1], here.resolve().parents[1] / "hardware",
              *(Path(prefix) / "share" / "robolearn" for prefix in prefixes))  # fmt: skip
    file = next((file for place in places if (file := place / f"{name}.py").exists()), places[0] / f"{name}.py")
    spec = importlib.util.spec_from_file_location(f"robolearn_{name}", file)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # dataclasses look there
    spec.loader.exec_module(module)
    return module


SHARED = "robolearn_launch_ends"


class Exited:
    """Consequences of the end of a node: with a `reason` the end of all. The exit code of ``ros2 launch``, by itself 0
    whatever its nodes ended with, becomes that of the first node that failed."""

    def __init__(self, reason: str) -> None:
        self.reason = reason
        # exit codes that are not 0, shared by the launch files of one process, each of which loads this file anew
        self.failed: list[int] = vars(sys.modules.setdefault(SHARED, ModuleType(SHARED))).setdefault("failed", [])

    def __call__(self, event: Any, context: LaunchContext) -> list[Any]:
        code = int(event.returncode or 0)
        ours = {file.name for file in Path(__file__).parent.glob("*.launch.py")}
        if code and any(Path(word).name in ours for word in sys.argv):  # not included by somebody else's
            if not self.failed:
                atexit.register(self._leave)
            self.failed.append(code if code > 0 else 128 - code)  # of a signal, as in a shell
        return [Shutdown(reason=self.reason)] if self.reason else []

    def _leave(self) -> None:
        """The last act of the process; `launch` returns its own code to the interpreter."""
        logging.shutdown()
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(self.failed[0])


class Started:
    """One of our nodes, started with its parameters as launch arguments.

    Args:
      name: of the node, in `hardware.node_parameters.NODES`; its program is `<name>_node`.
      parameters: their dataclass, where it is not in that table.
      renamed: parameter → launch argument, beside `ARGUMENTS`.
      fixed: parameters that are no arguments, and their values.
      ends: the reason for which its end ends everything; empty: it ends alone.
      patience_s: from Ctrl-C to the SIGTERM of launch, which is 5 s by itself: what it writes then is whole.
      condition: of its start.
    """

    def __init__(
        self,
        name: str,
        *,
        parameters: type | None = None,
        renamed: Mapping[str, str] = {},
        fixed: Mapping[str, Any] = {},
        ends: str = "",
        patience_s: float = 5.0,
        condition: Any = None,
    ) -> None:
        table = node_parameters()
        kind = parameters or table.NODES[name]
        described, names = table.descriptions(kind), {**ARGUMENTS, **renamed}
        # argument → (parameter, default, description)
        self.arguments = {
            names.get(field.name, field.name): (field.name, field.default, described[field.name])
            for field in fields(kind)
            if field.name not in fixed
        }
        values: dict[str, Any] = {
            parameter: ParameterValue(LaunchConfiguration(argument), value_type=type(default))
            for argument, (parameter, default, _) in self.arguments.items()
        }
        self.action = Node(
            package="robolearn",
            executable=f"{name}_node",
            namespace=LaunchConfiguration("namespace"),
            name=name,
            parameters=[{**values, **fixed}],
            output="screen",
            on_exit=Exited(ends),
            sigterm_timeout=str(patience_s),
            **({"condition": condition} if condition else {}),
        )


def described(
    file: str,
    *started: Started,
    include: str = "",
    include_if: Any = None,
    required: Sequence[str] = (),
    defaults: Mapping[str, str] = {},
    aliases: Mapping[str, tuple[str, str]] = {},
) -> LaunchDescription:
    """The nodes and their arguments, then the launch file that is included.

    Args:
      file: the launch file.
      include: another one beside it; its nodes are started last, so that nothing is started where the program of one
        of these is not installed.
      include_if: condition of it.
      required: arguments that must be given.
      defaults: argument → default, in place of its node's.
      aliases: another name of an argument → that argument, and what is said of the other name.
    """
    other = {argument: name for name, (argument, _) in aliases.items()}
    made = {"namespace": DeclareLaunchArgument(
        "namespace", default_value=defaults.get("namespace", "robolearn"), description=NAMESPACE
    )}  # fmt: skip
    for node in started:
        for name, (_, default, description) in node.arguments.items():
            if name in made:
                continue
            value = defaults.get(name, str(default).lower() if isinstance(default, bool) else str(default))
            if name in other:
                alias = other[name]
                made[alias] = DeclareLaunchArgument(alias, default_value=value, description=aliases[alias][1])
                value = LaunchConfiguration(alias)
            asked = {} if name in required else {"default_value": value}
            made[name] = DeclareLaunchArgument(name, description=description, **asked)
    entities = [*made.values(), *(node.action for node in started)]
    if include:
        source = PythonLaunchDescriptionSource(str(Path(file).with_name(include)))
        entities.append(IncludeLaunchDescription(source, **({"condition": include_if} if include_if else {})))
    description = LaunchDescription(entities)

    def refuse_unknown(context: LaunchContext) -> None:
        """ROS's launch passes over unknown arguments in silence, so that ``dry-run:=true`` would move the arm. Where a
        launch file of somebody else's includes `file`, the arguments are that one's."""
        name = Path(file).name
        if not any(Path(word).name == name for word in sys.argv):
            return
        given = [word.split(":=", 1)[0] for word in context.argv if ":=" in word]
        known = sorted({argument.name for argument in description.get_launch_arguments()})
        if unknown := [word for word in given if word not in known]:
            near = difflib.get_close_matches(unknown[0], known, n=1, cutoff=0.5)
            meant = f" (did you mean {near[0]}:=?)" if near else ""
            raise RuntimeError(f"{name} knows no {unknown[0]}:={meant}; available: {', '.join(known)}")

    return LaunchDescription([OpaqueFunction(function=refuse_unknown), *entities])
