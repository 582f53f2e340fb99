# MuJoCo's names live in compiled modules that bring no types. With this, pyright takes each of them for Any.
from typing import Any

def __getattr__(name: str) -> Any: ...
