"""For all tests."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator

import pytest

from robolearn.data.video.encoder_priority import ordinary_priority

# A shell that starts the tests in the background lets them ignore Ctrl-C, and with them the programs that they start.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

# Ten ROS domains for each of up to four workers of a session; a file that starts nodes adds a number of its own.
WORKER = os.environ.get("PYTEST_XDIST_WORKER", "")
SESSION = os.getppid() if WORKER else os.getpid()
os.environ["ROS_DOMAIN_ID"] = str(1 + (4 * SESSION + int(WORKER.removeprefix("gw") or 0)) % 10 * 10)


@pytest.fixture
def no_default_device() -> Iterator[None]:
    """A tensor that is made without saying where has no content: what computes with it fails, as on a GPU."""
    import torch

    torch.set_default_device("meta")
    try:
        yield
    finally:
        torch.set_default_device(None)


@pytest.fixture(autouse=True)
def ordinary_threads() -> Iterator[None]:
    """A test that encodes by a library alone leaves no thread of the highest priority behind (see `encoder_priority`).

    Nodes that later tests start in this process would inherit it, and nothing else would run.
    """
    with ordinary_priority():
        yield
