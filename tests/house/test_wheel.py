"""The wheel, built and installed in a clean environment: five packages, their data, what ROS needs, and no more."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import sysconfig
import tomllib
import zipfile
from pathlib import Path

import pytest

import robolearn

pytestmark = pytest.mark.long

ROOT = Path(__file__).parents[2]
PACKAGES = ("robolearn", "robots", "sim", "policies", "hardware")

IMPORT_ALL = """
import importlib, pkgutil, sys
for top in sys.argv[1:]:
    package = importlib.import_module(top)
    assert package.__file__.startswith(sys.prefix), package.__file__
    for module in pkgutil.walk_packages(package.__path__, top + "."):
        if module.ispkg:
            importlib.import_module(module.name)
            print(module.name)
"""


def copied(source: Path) -> Path:
    """A copy of what is built: setuptools writes into the source, and would take up what an older build left there."""
    source.mkdir()
    ignore = shutil.ignore_patterns("__pycache__", "*.egg-info")
    for name in (*PACKAGES, "launch", "tests"):
        if (ROOT / name).is_dir():
            shutil.copytree(ROOT / name, source / name, ignore=ignore)
    for name in ("pyproject.toml", "LICENSE", "README.md", "package.xml"):
        if (ROOT / name).exists():
            shutil.copy(ROOT / name, source)
    return source


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("wheel")
    source = copied(folder / "source")
    pip("wheel", "--no-deps", "--no-build-isolation", "--wheel-dir", str(folder), str(source), cwd=folder)
    (built,) = folder.glob("*.whl")
    return built


@pytest.fixture(scope="module")
def python(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The interpreter of a clean environment with the wheel; libraries are lent by the one that runs the tests."""
    place = tmp_path_factory.mktemp("clean") / "venv"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(place)], check=True, timeout=60)
    python = place / "bin" / "python"
    pip("--python", str(python), "install", "--no-deps", "--no-index", str(wheel), cwd=place)
    (site,) = place.glob("lib/python*/site-packages")
    # A plain path, not a site folder: the lender's own .pth files, an editable robolearn among them, are not read.
    (site / "lent.pth").write_text("\n".join({sysconfig.get_path("purelib"), sysconfig.get_path("platlib")}) + "\n")
    return python


def pip(*args: str, cwd: Path) -> None:
    call([sys.executable, "-m", "pip", "--disable-pip-version-check", *args], cwd)


def call(command: list[str], cwd: Path) -> str:
    """Run `command` where the checkout can be neither imported nor taken for an installed robolearn."""
    env = {key: value for key, value in os.environ.items() if key != "PYTHONPATH"}
    done = subprocess.run(command, capture_output=True, text=True, cwd=cwd, env=env, timeout=120)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_the_wheel_holds_the_five_packages_and_nothing_else(wheel: Path) -> None:
    assert wheel.name == f"robolearn-{robolearn.__version__}-py3-none-any.whl"
    names = zipfile.ZipFile(wheel).namelist()
    top = f"robolearn-{robolearn.__version__}"
    assert {name.split("/")[0] for name in names} == {*PACKAGES, f"{top}.dist-info", f"{top}.data"}
    assert {"/".join(name.split("/")[1:3]) for name in names if name.startswith(f"{top}.data")} == {
        "data/lib",
        "data/share",
    }


def test_an_editable_install_is_found_beside_the_folder_of_the_clone(tmp_path: Path) -> None:
    """A notebook beside the clone: the folder `robolearn` there must not be taken for the package."""
    clone = copied(tmp_path / "robolearn")
    build = f"import setuptools.build_meta as b; print(b.build_editable({str(tmp_path)!r}))"
    built = call([sys.executable, "-c", build], clone).split()[-1]
    place = tmp_path / "venv"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(place)], check=True, timeout=60)
    pip(
        "--python",
        str(place / "bin" / "python"),
        "install",
        "--no-deps",
        "--no-index",
        str(tmp_path / built),
        cwd=place,
    )
    found = "import importlib.util as u; print(*(u.find_spec(n).origin for n in ('robolearn', 'robots', 'sim')))"
    wanted = [str(clone / name / "__init__.py") for name in ("robolearn", "robots", "sim")]
    assert call([str(place / "bin" / "python"), "-c", found], tmp_path).split() == wanted


def test_every_source_and_data_file_is_in_the_wheel(wheel: Path) -> None:
    names = set(zipfile.ZipFile(wheel).namelist())
    wanted = {
        str(path.relative_to(ROOT))
        for package in PACKAGES
        for path in (ROOT / package).rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    }
    assert not wanted - names
    assert {f"{package}/py.typed" for package in PACKAGES} <= names


def test_every_package_imports_from_the_wheel(python: Path) -> None:
    imported = call([str(python), "-c", IMPORT_ALL, *PACKAGES], python.parent).split()
    here = {
        ".".join(path.parent.relative_to(ROOT).parts)
        for package in PACKAGES
        for path in (ROOT / package).rglob("*/__init__.py")
    }
    assert set(imported) == here - set(PACKAGES)


def test_the_program_is_installed(python: Path) -> None:
    assert (
        call([str(python.with_name("robolearn")), "--version"], python.parent) == f"robolearn {robolearn.__version__}\n"
    )


def test_ros_finds_the_package_its_launch_files_and_its_nodes(python: Path) -> None:
    prefix = python.parents[1]
    share, nodes = prefix / "share" / "robolearn", prefix / "lib" / "robolearn"
    assert (prefix / "share" / "ament_index" / "resource_index" / "packages" / "robolearn").is_file()
    for file in ("package.xml", "hardware/node_parameters.py"):
        assert (share / Path(file).name).read_bytes() == (ROOT / file).read_bytes()
    files, executables = (ROOT / "launch").glob("*.py"), (ROOT / "launch" / "executables").iterdir()
    assert {path.name for path in (share / "launch").glob("*.py")} == {path.name for path in files}
    assert {path.name for path in nodes.iterdir()} == {path.name for path in executables}
    assert all(os.access(path, os.X_OK) for path in nodes.iterdir())


def test_aments_own_index_finds_the_package(python: Path) -> None:
    """As `ros2 pkg prefix`, `ros2 launch` and other packages of a workspace look for it."""
    prefix = python.parents[1]
    code = f"""
import os
os.environ["AMENT_PREFIX_PATH"] = {str(prefix)!r}
import ament_index_python as ament
print(ament.get_package_prefix("robolearn"))
print(ament.get_package_share_directory("robolearn"))
print(*ament.get_packages_with_prefixes())
"""
    assert call([str(python), "-c", code], python.parent).split() == [
        str(prefix),
        str(prefix / "share/robolearn"),
        "robolearn",
    ]


def test_every_program_that_a_launch_file_starts_is_installed(python: Path) -> None:
    prefix = python.parents[1]
    for file in (prefix / "share" / "robolearn" / "launch").glob("*.launch.py"):
        started = re.findall(r'(?:"Started"\]|\bstarted)\(\s*"(\w+)"', file.read_text(encoding="utf-8"))
        assert started, file.name
        for node in started:
            assert os.access(prefix / "lib" / "robolearn" / f"{node}_node", os.X_OK), (file.name, node)


def test_the_contracts_are_loaded_from_the_wheel(python: Path) -> None:
    code = "from robots.stations import contract_names as n, load_contract as l; print(*(l(name).name for name in n()))"
    shipped = sorted(path.stem for path in (ROOT / "robots" / "stations").glob("*.yaml"))
    assert call([str(python), "-c", code], python.parent).split() == shipped
    code = "import robots, robots.stations as s; print(*(s.load_pair(name).robot.name for name in robots.PAIRS))"
    pairs = (ROOT / "robots" / "stations" / "pairs").glob("*.yaml")
    assert sorted(call([str(python), "-c", code], python.parent).split()) == sorted(path.stem for path in pairs)


def test_a_node_runs_with_the_python_beside_which_it_is_installed(python: Path, tmp_path: Path) -> None:
    """`ros2 launch` may be typed where this environment is not active, and where a folder has a name of ours."""
    (tmp_path / "hardware").mkdir()
    (tmp_path / "hardware" / "__init__.py").write_text("raise SystemExit('the wrong one')")
    env = {key: value for key, value in os.environ.items() if key != "PYTHONPATH"}
    for node in (python.parents[1] / "lib" / "robolearn").iterdir():
        done = subprocess.run([node, "--wrong", "1"], cwd=tmp_path, env=env, capture_output=True, text=True, timeout=60)
        assert (done.returncode, done.stdout) == (2, "")
        assert (
            done.stderr.startswith("error: flag: got --wrong; available: --contract") and done.stderr.count("\n") == 1
        )


def test_the_ros_index_of_an_editable_install_is_that_of_the_wheel(python: Path, tmp_path: Path) -> None:
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(tmp_path)], check=True, timeout=60)
    call([str(tmp_path / "bin" / "python"), str(ROOT / ".ci" / "ros-index")], tmp_path)
    table = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["setuptools"]["data-files"]
    for folder in table:
        linked = {path.name for path in (tmp_path / folder).iterdir()} - {"__pycache__"}
        copied = {path.name for path in (python.parents[1] / folder).iterdir()} - {"__pycache__"}
        assert linked | {"launch"} == copied | {"launch"} and linked
        assert all(path.resolve().is_relative_to(ROOT) for path in (tmp_path / folder).iterdir() if path.is_symlink())
