"""Ray, started on this machine for this command alone, or a cluster that somebody has started.

Ray's processes answer whoever reaches them and hold its token, and what they are sent is run. One that is started here
listens on the loopback interface, behind a token of its own. The token is no encryption: that is Ray's RAY_USE_TLS.
"""

from __future__ import annotations

import importlib
import importlib.util
import ipaddress
import logging
import os
import secrets
import warnings
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from robolearn.core import BadInput
from robolearn.core.errors import first_line
from robolearn.core.installation import install_command

log = logging.getLogger(__name__)

ONE_MACHINE = "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER"  # by its name only of those: 0 makes Ray listen on loopback alone
MODE, TOKEN, TOKEN_FILE = "RAY_AUTH_MODE", "RAY_AUTH_TOKEN", "RAY_AUTH_TOKEN_PATH"


def need_ray(flag: str) -> None:
    """Raise `BadInput` about `flag` where Ray is not installed."""
    if importlib.util.find_spec("ray") is None:
        raise BadInput(flag, got="no package ray", expected="it installed", hint=install_command("ray"))


def start_ray(**options: Any) -> Any:
    """The module, with the cluster of RAY_ADDRESS, or one that is started on this machine; `options` of it."""
    _quiet()
    if "RAY_ADDRESS" not in os.environ:  # read when Ray is imported
        os.environ[ONE_MACHINE] = "0"
        os.environ[MODE] = "token"
        os.environ.setdefault(TOKEN, secrets.token_hex(32))
        options |= {"include_dashboard": False, "address": "local"}  # nobody's cluster that happens to run here
    ray: Any = importlib.import_module("ray")
    ray.init(**options, log_to_driver=False, logging_level="ERROR")
    # Ray prints what became of a worker to stdout, which belongs to the result.
    ray._private.worker.print_to_stdstream = lambda data, **_: log.debug("Ray: %s", data["lines"])
    return ray


def join_ray(address: str, flag: str) -> Any:
    """The module, with the cluster at this address. Raises `BadInput` about `flag`: what `check_address` refuses, or
    no cluster answers there."""
    check_address(address, flag)
    _quiet()
    ray: Any = importlib.import_module("ray")
    for left in (1, 0):
        try:
            with warnings.catch_warnings(action="ignore"):  # it warns of what it then raises
                ray.init(address=address, log_to_driver=False, logging_level="ERROR")
            break
        except ConnectionAbortedError as error:  # it answered, and had no process for this client within its 30 s
            got = f"no process for this client ({str(error).strip().splitlines()[-1]})"
            if not left:
                raise BadInput(flag, got=got, expected="a cluster of Ray that has one in time") from error
            log.warning("%s: %s; once more, as it may be busy", address, got)
        except Exception as error:  # Ray raises its own types and gRPC's
            got = f"no answer ({type(error).__name__}: {first_line(error)})"
            raise BadInput(flag, got=got, expected="a cluster of Ray, its token the one here") from error
    return ray


def check_address(address: str, flag: str) -> None:
    """Raise `BadInput` unless `address` is ``ray://host:port``, on this machine, or behind a token beyond it."""
    try:
        parts = urlsplit(address)
        named = bool(parts.scheme == "ray" and parts.hostname and parts.port)
    except ValueError:
        named = False
    if not named:
        raise BadInput(flag, got=address, expected="ray://host:port, Ray's address for clients")
    if not on_this_machine(address) and not has_token():
        expected = f"{MODE}=token, and the cluster's token in {TOKEN} or ~/.ray/auth_token, here and on each node"
        hint = "Whoever reaches a cluster without one may run anything on it"
        raise BadInput(flag, got="an address beyond this machine, without a token", expected=expected, hint=hint)


def on_this_machine(address: str) -> bool:
    """True where the host of a URL is the loopback interface."""
    host = urlsplit(address).hostname or ""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def has_token() -> bool:
    """True where Ray is to send a token, and has one."""
    files = (Path(os.environ.get(TOKEN_FILE, "")), Path.home() / ".ray" / "auth_token")
    return os.environ.get(MODE, "").lower() == "token" and (
        bool(os.environ.get(TOKEN)) or any(path.is_file() for path in files)
    )


def _quiet() -> None:
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    os.environ.setdefault("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")  # tasks that ask for no GPU may still see them
