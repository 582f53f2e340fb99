"""A hub on this machine, as `huggingface_hub` speaks to one: repositories, commits, large files, tags, downloads.

As a process: python hub_double.py FOLDER TOKEN. Prints its port. ``FOLDER/TYPE/OWNER/NAME/COMMIT/`` holds what a commit
left, ``refs.json`` beside it branches and tags, and ``FOLDER/log`` a line for every request.
"""

from __future__ import annotations

import base64
import hashlib
import json
import shutil
import socket
import sys
from pathlib import Path

import yaml
from aiohttp import web

LARGE = (".safetensors", ".parquet", ".mp4")


class Hub:
    def __init__(self, folder: Path, token: str) -> None:
        self.folder, self.token, self.address = folder, token, ""

    def place(self, request: web.Request) -> Path:
        info = request.match_info
        return self.folder / info.get("type", "models").rstrip("s") / info["owner"] / info["name"]

    def refs(self, place: Path) -> dict[str, str]:
        if not place.is_dir():
            raise web.HTTPNotFound(headers={"X-Error-Code": "RepoNotFound"})
        return json.loads((place / "refs.json").read_text())

    def tree(self, request: web.Request) -> tuple[str, Path]:
        place = self.place(request)
        refs, asked = self.refs(place), request.match_info.get("rev", "main")
        commit = refs.get(asked, asked)
        if not (place / commit).is_dir():
            raise web.HTTPNotFound(headers={"X-Error-Code": "RevisionNotFound"})
        return commit, place / commit

    async def create(self, request: web.Request) -> web.Response:
        asked = await request.json()
        place = self.folder / asked.get("type", "model") / asked["organization"] / asked["name"]
        if place.exists():
            raise web.HTTPConflict(text=json.dumps({"url": f"{self.address}/x/y"}), content_type="application/json")
        (place / ("0" * 40)).mkdir(parents=True)
        (place / ("0" * 40) / ".gitattributes").write_text("*.safetensors filter=lfs\n")
        (place / "refs.json").write_text(json.dumps({"main": "0" * 40}))
        (place / "private").write_text(str(asked.get("visibility") == "private" or asked.get("private") is True))
        return web.json_response({"url": f"{self.address}/{asked['organization']}/{asked['name']}", "name": "x"})

    async def validate(self, request: web.Request) -> web.Response:
        asked = await request.json()
        try:
            head = yaml.safe_load(asked["content"].split("---\n")[1])
            errors = [] if isinstance(head.get("tags"), list) else [{"message": '"tags" must be an array'}]
        except (IndexError, AttributeError, yaml.YAMLError) as error:
            errors = [{"message": str(error)}]
        return web.json_response({"errors": errors, "warnings": []}, status=400 if errors else 200)

    async def preupload(self, request: web.Request) -> web.Response:
        files = (await request.json())["files"]
        mode = {True: "lfs", False: "regular"}
        return web.json_response(
            {"files": [{"path": f["path"], "uploadMode": mode[f["path"].endswith(LARGE)], "shouldIgnore": False}
                       for f in files]}
        )  # fmt: skip

    async def batch(self, request: web.Request) -> web.Response:
        objects = (await request.json())["objects"]
        link = {o["oid"]: f"{self.address}/large/{o['oid']}" for o in objects}
        return web.json_response(
            {"transfer": "basic", "objects": [o | {"actions": {"upload": {"href": link[o["oid"]]}}} for o in objects]}
        )

    async def large(self, request: web.Request) -> web.Response:
        data, oid = await request.read(), request.match_info["oid"]
        if hashlib.sha256(data).hexdigest() != oid:
            raise web.HTTPBadRequest(text="another sum")
        (self.folder / "large").mkdir(exist_ok=True)
        (self.folder / "large" / oid).write_bytes(data)
        return web.Response()

    async def commit(self, request: web.Request) -> web.Response:
        place, lines = self.place(request), (await request.read()).splitlines()
        refs = self.refs(place)
        commit = hashlib.sha1(b"".join(lines) + refs["main"].encode()).hexdigest()
        shutil.copytree(place / refs["main"], place / commit)
        for line in map(json.loads, lines):
            value = line["value"]
            target = place / commit / value.get("path", "")
            target.parent.mkdir(parents=True, exist_ok=True)
            if line["key"] == "file":
                target.write_bytes(base64.b64decode(value["content"]))
            elif line["key"] == "lfsFile":
                shutil.copy(self.folder / "large" / value["oid"], target)
            elif line["key"] == "deletedFile":
                target.unlink()
        (place / "refs.json").write_text(json.dumps(refs | {"main": commit}))
        url = f"{self.address}/{place.parent.name}/{place.name}/commit/{commit}"
        return web.json_response({"commitUrl": url, "commitOid": commit})

    async def tag(self, request: web.Request) -> web.Response:
        place, refs = self.place(request), self.refs(self.place(request))
        if request.method == "DELETE":
            if request.match_info["rev"] not in refs:
                raise web.HTTPNotFound(headers={"X-Error-Code": "RevisionNotFound"})
            refs.pop(request.match_info["rev"])
        else:
            refs[(await request.json())["tag"]] = refs[request.match_info["rev"]]
        (place / "refs.json").write_text(json.dumps(refs))
        return web.Response()

    async def info(self, request: web.Request) -> web.Response:
        commit, tree = self.tree(request)
        place = self.place(request)
        lies = place / "lies.json"  # what it announces wrongly: path → fields
        wrong = json.loads(lies.read_text()) if lies.exists() else {}
        files = {
            f["path"]: {"size": f["size"], "blobId": f["oid"]} | ({"lfs": f["lfs"]} if "lfs" in f else {})
            for f in _files(tree)
        }
        announced = [{"rfilename": name} | files.get(name, {}) | wrong.get(name, {}) for name in files | wrong]
        return web.json_response(
            {"id": f"{place.parent.name}/{place.name}", "sha": commit, "tags": [], "downloads": 0, "likes": 0,
             "private": False, "siblings": announced}
        )  # fmt: skip

    async def listing(self, request: web.Request) -> web.Response:
        return web.json_response(_files(self.tree(request)[1]))

    async def resolve(self, request: web.Request) -> web.Response:
        commit, tree = self.tree(request)
        file = tree / request.match_info["path"]
        if not file.is_file():
            raise web.HTTPNotFound(headers={"X-Error-Code": "EntryNotFound"})
        data = file.read_bytes()
        headers = {"X-Repo-Commit": commit, "ETag": f'"{hashlib.sha256(data).hexdigest()}"'}
        if request.method == "HEAD":
            return web.Response(headers=headers | {"Content-Length": str(len(data))})
        return web.Response(body=data, headers=headers)

    def app(self) -> web.Application:
        @web.middleware
        async def noted(request, handler):
            with open(self.folder / "log", "a") as file:
                print(request.method, request.rel_url.raw_path, file=file)
            told = request.headers.get("Authorization", "")
            if not request.path.startswith("/large/") and told != f"Bearer {self.token}":
                # As a hub does: a token that is wrong, with the token in its words.
                raise web.HTTPUnauthorized(text=json.dumps({"error": f"bad credentials {told}"}))
            if "/broken" in request.path:
                raise web.HTTPInternalServerError(text=json.dumps({"error": f"cannot {told}"}))
            return await handler(request)

        app, api, repo = (
            web.Application(middlewares=[noted]),
            "/api/{type:models|datasets}/{owner}/{name}",
            "{owner}/{name}",
        )
        app.router.add_post("/api/repos/create", self.create)
        app.router.add_post("/api/validate-yaml", self.validate)
        app.router.add_post(api + "/preupload/{rev}", self.preupload)
        app.router.add_post(api + "/commit/{rev}", self.commit)
        app.router.add_post(api + "/tag/{rev}", self.tag)
        app.router.add_delete(api + "/tag/{rev}", self.tag)
        app.router.add_get(api, self.info)
        app.router.add_get(api + "/revision/{rev}", self.info)
        app.router.add_get(api + "/tree/{rev}", self.listing)
        app.router.add_put("/large/{oid}", self.large)
        for front in ("/", "/{type:datasets}/"):
            app.router.add_post(front + repo + ".git/info/lfs/objects/batch", self.batch)
            app.router.add_get(front + repo + "/resolve/{rev}/{path:.*}", self.resolve)
        return app


def _files(tree: Path) -> list[dict]:
    found = sorted(file for file in tree.rglob("*") if file.is_file())
    files = []
    for file in found:
        data = file.read_bytes()
        name = {"type": "file", "path": file.relative_to(tree).as_posix(), "size": len(data)}
        files.append(name | {"oid": hashlib.sha1(b"blob %d\0" % len(data) + data).hexdigest()})
        if file.name.endswith(LARGE):
            sha = hashlib.sha256(data).hexdigest()
            files[-1]["lfs"] = {"oid": sha, "sha256": sha, "size": len(data), "pointerSize": 130}
    return files


if __name__ == "__main__":
    listener = socket.create_server(("127.0.0.1", 0))
    hub = Hub(Path(sys.argv[1]), sys.argv[2])
    hub.address = f"http://127.0.0.1:{listener.getsockname()[1]}"
    print(listener.getsockname()[1], flush=True)
    web.run_app(hub.app(), sock=listener, print=None)
