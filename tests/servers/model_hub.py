"""A model hub on loopback: the part of its HTTP interface that downloads need."""

from __future__ import annotations

import hashlib
import json
import threading
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from types import TracebackType
from urllib.parse import unquote, urlsplit


@dataclass
class Repository:
    """Commits by name, each a folder; `main` is the latest."""

    commits: dict[str, Path] = field(default_factory=dict)

    def commit(self, folder: Path) -> str:
        found = hashlib.sha1(str(len(self.commits)).encode()).hexdigest()
        self.commits[found] = folder
        return found

    def resolve(self, revision: str) -> str | None:
        if revision == "main":
            return list(self.commits)[-1]
        return revision if revision in self.commits else None


class ModelHub:
    """Repositories by `owner/name` and the requested paths, in `with ModelHub() as hub`."""

    def __init__(self) -> None:
        self.repositories: dict[str, Repository] = {}
        self.asked: list[str] = []
        hub = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_GET(self) -> None:
                hub.asked.append(self.path)
                self.answer(*hub.answer(unquote(urlsplit(self.path).path)))

            do_HEAD = do_GET

            def answer(self, status: int, body: bytes, headers: dict[str, str]) -> None:
                self.send_response(status)
                for name, value in {**headers, "Content-Length": str(len(body))}.items():
                    self.send_header(name, value)
                self.end_headers()
                if self.command == "GET":
                    self.wfile.write(body)

            def log_message(self, format: str, *args: object) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self._server.server_port}"

    def __enter__(self) -> ModelHub:
        threading.Thread(target=self._server.serve_forever, daemon=True).start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._server.shutdown()
        self._server.server_close()

    def model_requests(self) -> list[str]:
        """Return the requested paths, without those that the client library asks for itself."""
        return [path for path in self.asked if "/api/models/" in path or "/resolve/" in path]

    def answer(self, path: str) -> tuple[int, bytes, dict[str, str]]:
        for name, repository in self.repositories.items():
            start, _, revision = path.partition("/revision/")
            if start == f"/api/models/{name}":
                if commit := repository.resolve(revision or "main"):
                    return _json(self._facts(name, repository, commit))
                return 404, b"{}", {"X-Error-Code": "RevisionNotFound"}
            start, _, commit = path.partition("/tree/")
            if start == f"/api/models/{name}" and commit in repository.commits:
                return _json([_entry(each) for each in repository.commits[commit].iterdir()])
            prefix = f"/{name}/resolve/"
            if path.startswith(prefix):
                revision, _, file = path.removeprefix(prefix).partition("/")
                if commit := repository.resolve(revision):
                    return self._file(repository.commits[commit] / file, commit)
        missing = {"X-Error-Code": "RepoNotFound"}
        return 404, b'{"error": "Repository not found"}', missing

    def _facts(self, name: str, repository: Repository, commit: str) -> dict[str, object]:
        files = [path.name for path in sorted(repository.commits[commit].iterdir())]
        siblings = [{"rfilename": file} for file in files]
        return {"id": name, "modelId": name, "sha": commit, "siblings": siblings, "tags": []}

    def _file(self, path: Path, commit: str) -> tuple[int, bytes, dict[str, str]]:
        if not path.is_file():
            return 404, b"", {"X-Error-Code": "EntryNotFound", "X-Repo-Commit": commit}
        etag = f'"{_entry(path)["oid"]}"'
        return 200, path.read_bytes(), {"ETag": etag, "X-Repo-Commit": commit}


def _entry(path: Path) -> dict[str, object]:
    oid = hashlib.sha1(path.read_bytes()).hexdigest()
    return {"type": "file", "path": path.name, "size": path.stat().st_size, "oid": oid}


def _json(values: object) -> tuple[int, bytes, dict[str, str]]:
    return 200, json.dumps(values).encode(), {"Content-Type": "application/json"}
