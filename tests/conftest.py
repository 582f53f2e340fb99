"""For all tests."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from robolearn.data.humility import humble


@pytest.fixture(autouse=True)
def ordinary_threads() -> Iterator[None]:
    """A test that encodes by a library alone leaves no thread of the highest priority behind (see `humility`).

    Nodes that later tests start in this process would inherit it, and nothing else would run.
    """
    yield
    humble()
