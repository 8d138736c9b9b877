"""Langfuse and Phoenix for tests, as far as scores go, written from the definitions of their APIs:
Langfuse's OpenAPI document (`scores_create`, `scoresV3_getManyV3`), Phoenix's routers under `/v1`.
"""

from __future__ import annotations

import base64
import json
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Iterable
from datetime import UTC, datetime
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Self
from urllib.parse import parse_qs, urlsplit

Json = dict[str, Any]
Query = dict[str, list[str]]
Answer = tuple[int, Any]


GROUPS = {
    "details": ("comment", "configId", "metadata"),
    "subject": ("subject",),
    "annotation": ("authorUserId", "queueId"),
}
CORE = ("id", "projectId", "name", "value", "dataType", "source", "timestamp", "environment")
FILTERS = {"limit", "cursor", "fields", "name", "source", "fromTimestamp"}
MADE = {
    *("id", "traceId", "observationId", "sessionId", "datasetRunId", "name", "value"),
    *("dataType", "comment", "metadata", "environment", "configId", "queueId", "source"),
}


def _iso(at: float) -> str:
    return datetime.fromtimestamp(at, UTC).isoformat()


class _Server(ABC):
    """Answers with JSON; while `status` is set it answers with that and takes nothing."""

    def __init__(self) -> None:
        self.status: int | None = None
        self.asked: list[str] = []
        outer = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_GET(self) -> None:
                self._answer()

            def do_POST(self) -> None:
                self._answer()

            def _answer(self) -> None:
                length = int(self.headers.get("content-length") or 0)
                body = json.loads(self.rfile.read(length)) if length else None
                url = urlsplit(self.path)
                outer.asked.append(f"{self.command} {url.path}")
                authorization = self.headers.get("authorization") or ""
                if outer.status is not None:
                    status, answer = outer.status, {}
                elif not outer.is_let_in(authorization):
                    status, answer = 401, {"message": "invalid credentials"}
                else:
                    status, answer = outer.answer(self.command, url.path, parse_qs(url.query), body)
                text = json.dumps(answer).encode()
                self.send_response(status)
                self.send_header("content-type", "application/json")
                self.send_header("content-length", str(len(text)))
                self.end_headers()
                self.wfile.write(text)

            def log_message(self, *_: object) -> None: ...

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self._thread = threading.Thread(
            target=self._server.serve_forever, args=(0.05,), daemon=True
        )

    @abstractmethod
    def is_let_in(self, authorization: str) -> bool:
        """Return whether a request with this header may pass."""

    @abstractmethod
    def answer(self, method: str, path: str, query: Query, body: Any) -> Answer:
        """Return the status and the JSON of the answer to a request."""

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._server.server_address[1]}"

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join(5)


class LangfuseServer(_Server):
    """Scores by id; `annotate` is what a person does on its pages."""

    KEYS = ("pk-lf-test", "sk-lf-test")

    def __init__(self) -> None:
        super().__init__()
        self.scores: dict[str, Json] = {}

    def is_let_in(self, authorization: str) -> bool:
        return authorization == "Basic " + base64.b64encode(":".join(self.KEYS).encode()).decode()

    def answer(self, method: str, path: str, query: Query, body: Any) -> Answer:
        if (method, path) == ("POST", "/api/public/scores"):
            return self._create(body)
        if (method, path) == ("GET", "/api/public/v3/scores"):
            return self._list(query)
        return 404, {}

    def _create(self, body: Json) -> Answer:
        if body.keys() - MADE or not isinstance(body.get("name"), str):
            return 400, {"message": "invalid request data"}
        if "observationId" in body and "traceId" not in body:
            return 400, {"message": "observationId needs traceId"}
        if body.get("dataType", "NUMERIC") == "NUMERIC" and not isinstance(
            body.get("value"), int | float
        ):
            return 400, {"message": "value"}
        self._keep(body["id"], body, "API", None)
        return 200, {"id": body["id"]}

    def annotate(
        self, value: Any, trace_id: str, observation_id: str | None = None, by: str = "ann"
    ) -> None:
        score = {"name": "correct", "value": value, "traceId": trace_id, "dataType": "BOOLEAN"}
        if observation_id is not None:
            score["observationId"] = observation_id
        self._keep(f"annotation-{len(self.scores)}", score, "ANNOTATION", by)

    def _keep(self, id: str, body: Json, source: str, by: str | None) -> None:
        trace, observation = body["traceId"], body.get("observationId")
        subject = {"kind": "trace", "id": trace}
        if observation is not None:
            subject = {"kind": "observation", "id": observation, "traceId": trace}
        self.scores[id] = {
            **{name: body.get(name) for name in ("name", "value", "comment", "metadata")},
            "id": id,
            "projectId": "p",
            "dataType": body.get("dataType", "NUMERIC"),
            "source": source,
            "timestamp": _iso(time.time()),
            "environment": "default",
            "configId": None,
            "subject": subject,
            "authorUserId": by,
            "queueId": None,
        }

    def _list(self, query: Query) -> Answer:
        parameters = {name: values[0] for name, values in query.items()}
        groups = parameters.get("fields", "").split(",") if parameters.get("fields") else []
        limit, start = int(parameters.get("limit", 50)), int(parameters.get("cursor", 0))
        if parameters.keys() - FILTERS or set(groups) - GROUPS.keys() or not 0 < limit <= 100:
            return 400, {"message": "invalid query"}
        begin = datetime.fromisoformat(parameters.get("fromTimestamp", "1970-01-01T00:00:00Z"))
        found = [
            score
            for score in self.scores.values()
            if parameters.get("name") in (None, score["name"])
            and parameters.get("source") in (None, score["source"])
            and datetime.fromisoformat(score["timestamp"]) >= begin
        ]
        fields: Iterable[str] = {*CORE, *(f for group in groups for f in GROUPS[group])}
        meta: Json = {"limit": limit}
        if start + limit < len(found):
            meta["cursor"] = str(start + limit)
        page = [{name: each[name] for name in fields} for each in found[start : start + limit]]
        return 200, {"data": page, "meta": meta}


class PhoenixServer(_Server):
    """Annotations by span, name and identifier; `annotate` is what a person does on its pages."""

    KEY = "px-test"
    KINDS = ("LLM", "CODE", "HUMAN")

    def __init__(self) -> None:
        super().__init__()
        self.annotations: dict[tuple[str, str, str], Json] = {}

    def is_let_in(self, authorization: str) -> bool:
        return authorization == f"Bearer {self.KEY}"

    def answer(self, method: str, path: str, query: Query, body: Any) -> Answer:
        if (method, path) == ("POST", "/v1/span_annotations"):
            return self._create(body)
        if (method, path) == ("GET", "/v1/projects/apps/span_annotations"):
            return self._list(query)
        return 404, {}

    def _create(self, body: Json) -> Answer:
        data = body.get("data")
        if not isinstance(data, list):
            return 422, {"detail": "data"}
        for each in data:
            result = each.get("result")
            is_whole = each.get("name") and each.get("annotator_kind") in self.KINDS
            if not is_whole or len(each.get("span_id", "")) != 16 or not result:
                return 422, {"detail": "annotation"}
        return 200, {"data": [{"id": self._keep(each, None)} for each in data]}

    def annotate(self, span_id: str, by: str = "bob", **result: Any) -> None:
        human = {"span_id": span_id, "name": "correct", "annotator_kind": "HUMAN"}
        self._keep({**human, "identifier": f"px-app:{by}", "result": result}, by)

    def _keep(self, each: Json, user: str | None) -> str:
        key = each["span_id"], each["name"], each.get("identifier", "")
        now = _iso(time.time())
        kept = {"metadata": None, **each, "id": f"U{len(self.annotations)}", "user_id": user}
        self.annotations[key] = {**kept, "created_at": now, "updated_at": now, "source": "API"}
        return str(kept["id"])

    def _list(self, query: Query) -> Answer:
        spans, identifiers = query.get("span_ids"), query.get("identifier")
        names = query.get("include_annotation_names")
        limit = int(query.get("limit", ["10"])[0])
        start = int(query.get("cursor", ["0"])[0])
        if (spans is None and identifiers is None) or not 0 < limit <= 10_000:
            return 422, {"detail": "span_ids or identifier"}
        found = [
            each
            for (span, name, identifier), each in self.annotations.items()
            if (spans is None or span in spans)
            and (identifiers is None or identifier in identifiers)
            and (names is None or name in names)
        ]
        more = str(start + limit) if start + limit < len(found) else None
        return 200, {"data": found[start : start + limit], "next_cursor": more}
