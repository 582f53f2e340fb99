"""Where this robolearn was installed from. It stands in no index, where another package has its name."""

from __future__ import annotations

import importlib.metadata
import json
import sys
from pathlib import Path
from urllib.parse import urlsplit
from urllib.request import url2pathname

#: The folder that holds the packages: the checkout, where the installation is editable.
PLACE = Path(__file__).resolve().parents[2]


def install_command(extra: str = "") -> str:
    """Command that adds an `extra` to this installation, from where it came (PEP 610) and in the way it came."""
    # The first one that is found may be what a build left in the checkout, which says nothing of where it is from.
    said = (found.read_text("direct_url.json") for found in importlib.metadata.distributions(name="robolearn"))
    origin = json.loads(next(filter(None, said), "{}"))
    url, editable = origin.get("url", ""), origin.get("dir_info", {}).get("editable", False)
    chosen = f"[{extra}]" if extra else ""
    if "vcs_info" in origin:
        source = f"robolearn{chosen} @ {origin['vcs_info']['vcs']}+{url}"
    elif url.startswith("file:"):
        source = f"{url2pathname(urlsplit(url).path)}{chosen}"
    else:
        source = f"CLONE{chosen}"  # a folder that only its owner can name
    return f"{sys.executable} -m pip install {'-e ' if editable else ''}'{source}'"
