"""Message packages of arms' drivers, which no wheel carries, built from their fields for the tests that need them.

What a topic or action is called and which fields it has is written down below; the generators of ROS's own wheels make
type support of it, as a colcon workspace does. Run as a program with a folder, it builds there.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import sysconfig
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

STATUS = "bool success\nstring error\n---\nfloat64 current_width\n"
REACHED = "float64 position\nfloat64 effort\nbool stalled\nbool reached_goal\n"
INTERFACES = {
    "franka_msgs": {
        "action/Move.action": "float64 width\nfloat64 speed\n---\n" + STATUS,
        "action/Grasp.action": "float64 width\nGraspEpsilon epsilon\nfloat64 speed\nfloat64 force\n---\n" + STATUS,
        "msg/GraspEpsilon.msg": "float64 inner 0.005\nfloat64 outer 0.005\n",
    },
    "control_msgs": {
        "action/GripperCommand.action": "GripperCommand command\n---\n" + REACHED + "---\n" + REACHED,
        "msg/GripperCommand.msg": "float64 position\nfloat64 max_effort\n",
    },
    "ur_dashboard_msgs": {
        "msg/RobotMode.msg": "int8 mode\n",
        "msg/SafetyMode.msg": "uint8 mode\n",
    },
}
DEPENDENCIES = ("unique_identifier_msgs", "builtin_interfaces", "service_msgs", "action_msgs")
PREFIX = Path(sys.prefix)


def buildable() -> bool:
    """Whether this machine has compilers and the generators' wheels."""
    return bool(shutil.which("gcc") and shutil.which("g++")) and (PREFIX / "share" / "rosidl_generator_py").is_dir()


def build(folder: Path, packages: Iterable[str] = INTERFACES) -> Path:
    """Build packages, by default all, below `folder`; the folder to put on the path of Python."""
    os.environ.setdefault("AMENT_PREFIX_PATH", str(PREFIX))
    for package in packages:
        _build(package, INTERFACES[package], folder)
    return folder / "site"


def _build(package: str, files: dict[str, str], folder: Path) -> None:
    import numpy

    source, idl, generated, site = (folder / part / package for part in ("source", "idl", "generated", "site"))
    _generate(package, files, source, idl, generated, site)
    includes = [
        folder / "generated",
        PREFIX / "include",
        *(path for path in (PREFIX / "include").iterdir() if path.is_dir()),
        sysconfig.get_path("include", vars={"installed_base": sys.base_prefix, "base": sys.base_prefix}),
        numpy.get_include(),
    ]
    sources = [*generated.rglob("*.c"), *generated.rglob("*.cpp"), *site.rglob("*.c")]

    def compile_(path: Path) -> str:
        made = f"{path}.o"
        compiler = ("g++", "-std=c++17") if path.suffix == ".cpp" else ("gcc", "-std=gnu11")
        flags = ("-O0", "-w", "-fPIC", f'-DROS_PACKAGE_NAME="{package}"', *(f"-I{one}" for one in includes))
        subprocess.run([*compiler, *flags, "-c", str(path), "-o", made], check=True)
        return made

    with ThreadPoolExecutor(2) as pool:
        objects = list(pool.map(compile_, sources))
    tools = ("generator_c", "typesupport_c", "typesupport_fastrtps_c", "generator_py")
    libraries = [
        *("rosidl_runtime_c", "rosidl_typesupport_c", "rosidl_typesupport_fastrtps_c"),
        *("rosidl_typesupport_fastrtps_cpp", "fastcdr"),
        *(f"{one}__rosidl_{tool}" for one in DEPENDENCIES for tool in tools),
    ]
    there = [one for one in libraries if (PREFIX / "lib" / f"lib{one}.so").exists()]
    extension = site / f"{package}_s__rosidl_typesupport_c{sysconfig.get_config_var('EXT_SUFFIX')}"
    paths = (f"-L{PREFIX / 'lib'}", f"-Wl,-rpath,{PREFIX / 'lib'}")
    subprocess.run(["g++", "-shared", "-o", str(extension), *objects, *paths, *(f"-l{x}" for x in there)], check=True)


def _generate(package: str, files: dict[str, str], source: Path, idl: Path, generated: Path, site: Path) -> None:
    from rosidl_adapter import convert_to_idl
    from rosidl_cli.command import helpers
    from rosidl_generator_c import generate_c
    from rosidl_generator_py import generate_py
    from rosidl_generator_type_description import generate_type_hash
    from rosidl_typesupport_c import generate_c as generate_typesupport_c
    from rosidl_typesupport_fastrtps_c import generate_typesupport_fastrtps_c

    share = PREFIX / "share"
    interfaces = []
    for name, text in sorted(files.items()):
        path = source / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        convert_to_idl(source, package, Path(name), idl)
        interfaces.append(f"{idl}:{Path(name).with_suffix('.idl')}")

    def arguments(tool: str, output: Path) -> dict[str, Any]:
        return {
            "package_name": package,
            "interface_files": interfaces,
            "include_paths": [str(share)],
            "templates_path": share / tool / "resource",
            "output_path": output,
        }

    found = [*share.glob("*/msg/*.idl"), *share.glob("*/srv/*.idl")]
    others = sorted({f"{path.parents[1].name}:{path.parents[1]}" for path in found})
    full = helpers.legacy_generator_arguments(**arguments("rosidl_generator_type_description", generated))
    with helpers.generator_arguments_file(**full, include_paths=others) as file:
        hashes = generate_type_hash(file)
    # Each with those of its own folder: a message and an action of one name are told apart by nothing else.
    described = [
        one
        for interface in interfaces
        for one in helpers.build_type_description_tuples(
            [interface],
            [path for path in hashes if Path(path).parent.name == Path(interface.rpartition(":")[2]).parent.name],
        )
    ]
    for tool in ("rosidl_generator_c", "rosidl_typesupport_fastrtps_c"):
        name = f"{tool}__visibility_control.h"
        template = share / tool / "resource" / f"{name}.in"
        helpers.generate_visibility_control_file(
            package_name=package, template_path=template, output_path=generated / "msg" / name
        )
    full = helpers.legacy_generator_arguments(**arguments("rosidl_generator_c", generated))
    with helpers.generator_arguments_file(
        **full,
        type_description_tuples=described,
        ros_interface_files=[str(helpers.ros_interface_file_from_idl(one)) for one in interfaces],
    ) as file:
        generate_c(file)
    with helpers.legacy_generator_arguments_file(**arguments("rosidl_typesupport_fastrtps_c", generated)) as file:
        generate_typesupport_fastrtps_c(file)
    with helpers.legacy_generator_arguments_file(**arguments("rosidl_typesupport_c", generated)) as file:
        generate_typesupport_c(file, ["rosidl_typesupport_fastrtps_c"])
    with helpers.legacy_generator_arguments_file(**arguments("rosidl_generator_py", site)) as file:
        generate_py(file, ["rosidl_typesupport_c"])


if __name__ == "__main__":
    print(build(Path(sys.argv[1]).resolve()))
