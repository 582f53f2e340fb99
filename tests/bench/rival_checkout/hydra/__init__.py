"""As much of hydra as agents of checkouts need, for tests without it."""

from . import utils  # noqa: F401
