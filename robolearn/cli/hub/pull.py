"""``robolearn hub pull``: a policy or a data set from a hub, checked before it has its name."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

import tyro

from robolearn.core import BadInput
from robolearn.runs.command import Command


@dataclass(frozen=True, kw_only=True)
class HubPull(Command):
    """Bring a policy or a data set of ours from a hub into a folder, where every other command takes it.

    Nothing that is unpickled when it is read is brought. What comes is opened once before the folder gets its name.

    Example: robolearn hub pull me/lift-panda --out policies/lift-panda
    """

    repo: Annotated[tyro.conf.Positional[str], tyro.conf.arg(metavar="OWNER/NAME")]
    """OWNER/NAME there."""
    out: Path
    """A new folder."""
    kind: Literal["", "model", "dataset"] = ""
    """Where a policy and a data set have the same name."""
    revision: str = ""
    """A branch, tag or commit; by default the newest."""

    def run(self) -> dict[str, Any]:
        """``{"repo", "kind", "out", "files", "bytes"}``."""
        from robolearn.cli.hub.content import PULLED, content_of
        from robolearn.cli.hub.remote import check_name, kind_of, open_hub, pull

        check_name(self.repo)
        if self.out.exists():
            raise BadInput(f"--out {self.out}", got="something that is there already", expected="a new folder")
        hub = open_hub(write=False)
        kind = self.kind or kind_of(hub, self.repo)
        self.out.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=self.out.parent, prefix=f".{self.out.name}.") as place:
            folder = Path(place) / "pulled"
            pull(hub, self.repo, kind, PULLED, self.revision, folder)
            shutil.rmtree(folder / ".cache", ignore_errors=True)  # of the library's, not of the repository
            try:
                content = content_of(folder)
            except BadInput as error:
                told = str(error).replace(str(folder), self.repo)
                raise BadInput(f"hub pull {self.repo}: what is there is none of ours: {told}") from None
            folder.rename(self.out)
        files = [self.out / name for name in content.files]
        size = sum(file.stat().st_size for file in files)
        return {"repo": self.repo, "kind": content.kind, "out": str(self.out), "files": len(files), "bytes": size}

    def show(self, result: Mapping[str, Any], console: Any) -> None:
        from robolearn.cli.dataset.common import megabytes

        console.print(f"pulled      {result['files']} files, {megabytes(result['bytes'])}, to {result['out']}")
        flag = "train --data" if result["kind"] == "dataset" else "evaluate --policy"
        console.print(f"next        robolearn {flag} {result['out']} …")
