"""Log lines on a terminal whose last line is drawn in place: each is written above that line."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import TextIO

#: What draws a line in place adds a function here that writes a line above it and draws its own anew.
DRAWN: list[Callable[[str], None]] = []


class LogLines(logging.StreamHandler[TextIO]):
    """Log lines on standard error, above the line that is drawn there."""

    def emit(self, record: logging.LogRecord) -> None:
        if not DRAWN:
            super().emit(record)
            return
        try:
            DRAWN[-1](self.format(record))
        except Exception:  # as in `logging`: a line that cannot be written stops no work
            self.handleError(record)
