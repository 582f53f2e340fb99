"""The make targets and contracts: a working Python is found, broken layers are noticed, versions agree."""

from __future__ import annotations

import ast
import os
import re
import shutil
import subprocess
import sys
import tomllib
import xml.etree.ElementTree as ElementTree
from pathlib import Path

import pytest

import robolearn

ROOT = Path(__file__).parents[2]
PACKAGES = ("robolearn", "robots", "sim", "policies", "hardware")


def script(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)


def find_python(tmp_path: Path, **env: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [ROOT / ".ci" / "find-python"],
        env={"HOME": str(tmp_path), "PATH": f"{tmp_path / 'bin'}:/bin:/usr/bin", **env},
        capture_output=True,
        text=True,
        timeout=60,
    )


def test_find_python_passes_over_shims_that_fail_and_versions_that_do_not_fit(tmp_path: Path) -> None:
    for name in ("python3.11", "python3.12", "python"):
        script(tmp_path / "bin" / name, "echo 'pyenv: command not found' >&2; exit 127")
    script(tmp_path / "bin" / "python3", f'exec {sys.executable} "$@"')
    found = find_python(tmp_path)
    assert found.returncode == 0 and Path(found.stdout.strip()).exists() and not found.stderr


def test_find_python_takes_the_one_that_is_named(tmp_path: Path) -> None:
    script(tmp_path / "bin" / "python3.11", "exit 1")
    found = find_python(tmp_path, PYTHON=sys.executable)
    assert found.returncode == 0 and found.stdout.strip() == sys.executable


def test_find_python_says_in_one_line_that_there_is_none(tmp_path: Path) -> None:
    for name in ("python3.11", "python3.12", "python3", "python", "uv"):
        script(tmp_path / "bin" / name, "exit 1")
    found = find_python(tmp_path)
    assert found.returncode == 2 and not found.stdout
    assert found.stderr.count("\n") == 1 and "no Python 3.11 or 3.12" in found.stderr


def make_quickstart(tmp_path: Path, *args: str) -> str:
    """`make quickstart` in a copy whose environment is already there and whose program only echoes."""
    shutil.copy(ROOT / "Makefile", tmp_path)
    (tmp_path / "pyproject.toml").write_text("")
    script(tmp_path / ".venv" / "bin" / "robolearn", 'echo "$@"')
    for stamp in (".made", ".base"):
        (tmp_path / ".venv" / stamp).touch()
    # `make test ARGS=…` hands its variables on to every make below it.
    env = {key: value for key, value in os.environ.items() if key not in ("MAKEFLAGS", "MAKEOVERRIDES", "ARGS", "OUT")}
    done = subprocess.run(
        ["make", "-s", "quickstart", *args],
        cwd=tmp_path,
        env=env,
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    )
    return done.stdout.strip()


def test_quickstart_never_names_a_folder_that_is_there(tmp_path: Path) -> None:
    assert make_quickstart(tmp_path) == "quickstart --out runs/quickstart"
    (tmp_path / "runs" / "quickstart").mkdir(parents=True)
    assert make_quickstart(tmp_path) == "quickstart --out runs/quickstart-2"
    (tmp_path / "runs" / "quickstart-2").mkdir()
    assert make_quickstart(tmp_path, "ARGS=--seed 1") == "quickstart --out runs/quickstart-3 --seed 1"
    assert make_quickstart(tmp_path, "OUT=runs/quickstart", "ARGS=--resume") == (
        "quickstart --out runs/quickstart --resume"
    )


@pytest.mark.long
@pytest.mark.parametrize(
    ("file", "line", "contract"),
    [
        (None, "", ""),
        ("robolearn/core/extra.py", "import robolearn.runs", "Upper rooms"),
        ("robolearn/io/extra.py", "import robolearn.runs", "Upper rooms"),
        ("robots/extra.py", "import sim", "Upper rooms"),
        ("sim/extra.py", "import hardware", "Upper rooms"),
        ("robolearn/rl/__init__.py", "import sim", "Only robolearn.cli, robolearn.bench and the examples"),
        (
            "robolearn/deploy/__init__.py",
            "import sim",
            "Only robolearn.cli, robolearn.bench and the examples",
        ),
        ("robolearn/presets.py", "import hardware", "Only robolearn.cli, robolearn.bench, robolearn.deploy"),
        ("robolearn/deploy/__init__.py", "import hardware", ""),
        ("robolearn/hil/extra.py", "import hardware, robolearn.deploy", ""),
        ("robolearn/data/video/extra.py", "import robolearn.data.convert", "Data: the format"),
        ("robolearn/cli/extra.py", "import sim, hardware", ""),
        ("robolearn/bench/extra.py", "import sim, hardware, robolearn.hil", ""),
        ("robolearn/bench/extra.py", "import robolearn.cli", "Upper rooms"),
    ],
)
def test_the_contracts_notice_a_room_that_reaches_up(
    tmp_path: Path, file: str | None, line: str, contract: str
) -> None:
    # Rooms without their files: what is tested is the contracts, not today's imports.
    for room in (
        *PACKAGES,
        *(
            f"robolearn/{name}"
            for name in ("cli", "examples", "deploy", "rollout", "data", "data/convert", "runs", "io", "core")
        ),
    ):
        (tmp_path / room).mkdir(parents=True, exist_ok=True)
        (tmp_path / room / "__init__.py").touch()
    shutil.copy(ROOT / "pyproject.toml", tmp_path)
    if file is not None:
        (tmp_path / file).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / file).with_name("__init__.py").touch()
        (tmp_path / file).write_text(line + "\n")
    done = lint_imports(tmp_path)
    assert (done.returncode == 0) == (not contract), done.stdout
    assert not contract or f"{contract}" in done.stdout.split("Broken contracts")[-1], done.stdout


def test_the_contracts_are_kept() -> None:
    done = lint_imports(ROOT)
    assert done.returncode == 0, done.stdout + done.stderr


def lint_imports(folder: Path) -> subprocess.CompletedProcess[str]:
    code = (
        "import sys; sys.path.insert(0, '.'); from importlinter.cli import lint_imports_command as c; c(['--no-cache'])"
    )
    env = {**os.environ, "PYTHONPATH": str(folder)}
    return subprocess.run(
        [sys.executable, "-c", code], cwd=folder, env=env, capture_output=True, text=True, timeout=120
    )


def test_the_version_is_the_same_everywhere() -> None:
    package = ElementTree.parse(ROOT / "package.xml").getroot()
    assert package.findtext("version") == robolearn.__version__
    assert package.findtext("name") == "robolearn" and package.get("format") == "3"
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert project["dynamic"] == ["version"]
    assert package.findtext("license") == project["license"]


def test_launch_and_tests_are_no_packages() -> None:
    assert not list((ROOT / "launch").rglob("__init__.py"))
    assert not list((ROOT / "tests").rglob("__init__.py"))


def test_the_package_manifest_is_complete() -> None:
    package = ElementTree.parse(ROOT / "package.xml").getroot()
    order = ["name", "version", "description", "maintainer", "license"]
    order += ["buildtool_depend", "exec_depend", "test_depend", "export"]
    assert list(dict.fromkeys(child.tag for child in package)) == order
    assert re.fullmatch(r"\d+\.\d+\.\d+", package.findtext("version") or "")
    maintainer, licence = package.find("maintainer"), package.find("license")
    assert maintainer is not None and maintainer.text and "@" in maintainer.get("email", "")
    assert licence is not None and (ROOT / licence.get("file", "")).is_file()
    assert package.findtext("export/build_type") == "ament_python"
    assert all(child.text and child.text.strip() for child in package if child.tag != "export")


@pytest.mark.long
def test_every_ros_package_that_is_imported_is_a_dependency() -> None:
    package = ElementTree.parse(ROOT / "package.xml").getroot()
    declared = {node.text for node in package.iter("exec_depend")}
    ros = re.compile(r"rclpy|launch|launch_ros|\w+_(msgs|srvs|interfaces)")
    imported = set()
    for path in [*(ROOT / "launch").glob("*.py"), *(file for room in PACKAGES for file in (ROOT / room).rglob("*.py"))]:
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            names += [node.module or ""] if isinstance(node, ast.ImportFrom) and not node.level else []
            imported |= {name.split(".")[0] for name in names if ros.fullmatch(name.split(".")[0])}
    assert not imported - declared, "in package.xml this is missing"
    extra = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]["ros"]
    wheels = {name.removeprefix("ros-kilted-").replace("-", "_") for name in extra}
    # launch has no wheels; the interfaces come with rclpy.
    assert not imported - wheels - {"launch", "launch_ros", "builtin_interfaces", "rcl_interfaces"}, (
        "in the extra `ros` this is missing"
    )


def test_each_test_keeps_to_the_ten_ros_domains_of_its_worker() -> None:
    """One more, and two workers' arms and safety nodes hear each other now and then."""
    found = {
        path.name: int(more)
        for path in sorted((ROOT / "tests").rglob("*.py"))
        for more in re.findall(r'ROS_DOMAIN_ID"\]\) \+ (\d+)', path.read_text())
    }
    assert len(found) > 20 and {name: more for name, more in found.items() if more > 9} == {}


PRIVATE_USES = 131  # may only fall: of members that the standard library documents there is no other name
DOCUMENTED = ("os._exit", "sys._getframe", "._replace", "._asdict")


def test_tests_reach_for_fewer_private_members_and_never_for_more() -> None:
    """Where a test needs one, a reader would, too: it is public then, or the test looks at what the object does."""
    found = {}
    for path in sorted((ROOT / "tests").rglob("*.py")):
        source = path.read_text()
        if not re.search(r"\._[a-z]", source):
            continue
        members = [node for node in ast.walk(ast.parse(source)) if isinstance(node, ast.Attribute)]
        private = [one for one in members if re.match(r"_(?!_)", one.attr) and ast.unparse(one.value) != "self"]
        if uses := [text for one in private if not (text := ast.unparse(one)).endswith(DOCUMENTED)]:
            found[str(path.relative_to(ROOT))] = uses
    listed = "\n".join(f"{len(uses):3} {path}: {', '.join(sorted(set(uses)))}" for path, uses in found.items())
    assert sum(map(len, found.values())) <= PRIVATE_USES, listed


def test_a_class_name_stands_for_one_class() -> None:
    places: dict[str, list[str]] = {}
    for room in PACKAGES:
        for path in sorted((ROOT / room).rglob("*.py")):
            for name in re.findall(r"^class (\w+)", path.read_text(), re.MULTILINE):
                places.setdefault(name, []).append(str(path.relative_to(ROOT)))
    assert {name: paths for name, paths in places.items() if len(paths) > 1} == {}


def test_no_file_of_a_room_is_longer_than_a_reader_s_patience() -> None:
    found = {str(path.relative_to(ROOT)): len(path.read_text().splitlines())
             for room in PACKAGES for path in sorted((ROOT / room).rglob("*.py"))}  # fmt: skip
    assert len(found) > 500 and {path: lines for path, lines in found.items() if lines > 400} == {}
