"""The site is built of all pages, strictly: a link or an anchor that leads nowhere ends it with an error. Its reference
is made of configs and docstrings."""

from __future__ import annotations

import importlib.util
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import ClassVar

import pytest

from hardware.teleop import TELEOPERATORS, TeleopConfig
from hardware.teleop.device import flag
from robolearn.cli.registry import ENTRIES
from robolearn.core.plugins import ROOMS
from robolearn.rl.algorithms import ALGORITHMS
from robolearn.rl.off_policy_settings import RlpdConfig
from robots.stations import Camera, values

ROOT = Path(__file__).parents[2]
pytestmark = pytest.mark.long


@pytest.fixture(scope="module")
def reference() -> ModuleType:
    spec = importlib.util.spec_from_file_location("reference", ROOT / ".ci" / "reference.py")
    assert spec is not None and spec.loader is not None
    module = sys.modules[spec.name] = importlib.util.module_from_spec(
        spec
    )  # where its dataclasses look for their types
    spec.loader.exec_module(module)
    return module


@dataclass(frozen=True, kw_only=True)
class Sleepy(RlpdConfig):
    """RLPD that rests."""

    title: ClassVar[str] = "Sleepy"

    nap_steps: int = 7
    """Control steps of a nap."""


@dataclass(frozen=True)
class Whistle(TeleopConfig):
    """A whistle.

    Attributes:
      octave: the lowest that counts.
    """

    name: ClassVar[str] = "whistle"

    pitch: float = flag("whistle_pitch", 440.0, "Pitch of open")
    octave: int = 3


@values.section
class Tinted(Camera):
    """A camera behind coloured glass.

    Attributes:
      tint: shift of its hue [degrees].
    """

    tint: values.Age = 0.5


@dataclass(frozen=True)
class Station:
    """A contract of tinted cameras alone.

    Attributes:
      cameras: by name.
    """

    cameras: dict[str, Tinted]


def build(folder: Path, root: Path = ROOT) -> subprocess.CompletedProcess[str]:
    program = [sys.executable, str(root / ".ci" / "docs"), str(folder)]
    return subprocess.run(program, capture_output=True, text=True, timeout=200)


def test_the_site_has_every_page_and_every_command(tmp_path: Path) -> None:
    done = build(tmp_path / "docs")
    assert done.returncode == 0, done.stdout + done.stderr
    site = tmp_path / "docs" / "site"
    for page in (ROOT / "robolearn" / "docs").glob("*.md"):
        assert (site / "robolearn" / "docs" / f"{page.stem}.html").is_file()
        assert f"robolearn/docs/{page.name}" in (ROOT / ".ci" / "docs").read_text()  # in the navigation
    commands = (site / "commands.html").read_text()
    assert [entry.name for entry in ENTRIES if f"robolearn {entry.name}<" not in commands] == []
    assert "usage: robolearn train" in commands and "--width INT" in commands
    assert "make_env" in (site / "python.html").read_text()
    for page in ("contract", "algorithms", "settings", "plugins"):
        assert (site / f"{page}.html").is_file() and f": {page}.md" in (ROOT / ".ci" / "docs").read_text()
    assert "<code>cameras.&lt;name&gt;.rotate</code>" in (site / "contract.html").read_text()
    outside = [line for page in site.rglob("*.html") for line in page.read_text().splitlines() if "fonts.g" in line]
    assert outside == []  # it is read without a network, too


def test_a_link_that_leads_nowhere_is_an_error(tmp_path: Path) -> None:
    root = tmp_path / "clone"
    (root / ".ci").mkdir(parents=True)
    for name in ("docs", "reference.py"):
        shutil.copy(ROOT / ".ci" / name, root / ".ci")
    (root / "README.md").write_text("[gone](robolearn/gone.md)")
    for name in ("CONTRIBUTING.md", "CHANGELOG.md"):
        (root / name).write_text("")
    done = build(tmp_path / "docs", root)
    assert done.returncode != 0 and "gone.md" in done.stdout + done.stderr


def test_a_new_field_is_in_the_reference(reference: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(ALGORITHMS, "sleepy", Sleepy)
    monkeypatch.setitem(TELEOPERATORS, "whistle", Whistle)
    page = reference.algorithms().partition("## Sleepy: `sleepy`\n\nRLPD that rests.\n")[2]
    assert "| `--nap-steps` | `7` | Control steps of a nap. |" in page
    assert "| `--gripper-penalty` | `0.02` |" in page  # of its base
    page = reference.settings().partition("### `whistle`")[2]
    assert "| `--whistle-pitch` | `440.0` | Pitch of open |" in page
    assert "| `octave` | `3` | the lowest that counts. |" in page
    found = {one.key: one for one in reference.keys(Station)}
    tint = found["cameras.<name>.tint"]
    assert (tint.type, tint.default, tint.unit) == ("number (0.001 to 5)", "`0.5`", "degrees")
    assert found["cameras.<name>.intrinsics.fx"].default == "required"


def test_the_reference_has_every_key_of_a_contract(reference: ModuleType) -> None:
    page = reference.contract()
    for key in (
        "limits.velocity_share", "limits.obstacles.<name>.yaw", "limits.held.lower", "cameras.<name>.rotate",
        "cameras.<name>.pose.parent", "tool.boxes.<name>.upper", "conditions.<name>.mend", "command.posture.topic",
    ):  # fmt: skip
        assert f"\n| `{key}` | " in page
    assert "| `conditions.<name>.name` |" not in page  # which is its key


def test_every_setting_has_a_docstring(reference: ModuleType) -> None:
    for made in (reference.contract, reference.algorithms, reference.settings):
        rows = [line for line in made().splitlines() if line.startswith("| `")]
        assert len(rows) > 100 and [row for row in rows if row.endswith("|  |")] == []


def test_the_reference_has_every_group_of_plug_ins(reference: ModuleType) -> None:
    sections = reference.plugins().split("\n## ")[1:]
    assert [section.partition("\n")[0] for section in sections] == [f"robolearn.{room}" for room in ROOMS]
    assert "    def build(" in sections[list(ROOMS).index("teleoperators")]
    assert not any("__post_init__" in section or "raise " in section for section in sections)
