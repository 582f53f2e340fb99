"""The console that commands print on: a line of text is never broken, so that a command in it is copied whole.

A terminal breaks long lines where it shows them, which no copy contains. Tables are fitted to the width.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.console import Console


def make_console(*, stderr: bool = False, piped: int | None = None) -> Console:
    """A console on stdout or `stderr`.

    Args:
      piped: width of tables where stdout is no terminal: a pipe has none, and rich would cut them at 80 columns.
    """
    from rich.console import Console  # late: `--json` does without

    width = None if sys.stdout.isatty() else piped
    return Console(stderr=stderr, highlight=False, soft_wrap=True, width=width)
