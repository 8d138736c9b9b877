"""An OpenTelemetry collector for tests: HTTP and protobuf, as in the OTLP specification."""

from __future__ import annotations

import gzip
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Self

from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import (
    ExportLogsServiceRequest,
    ExportLogsServiceResponse,
)
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import (
    ExportTraceServiceRequest,
    ExportTraceServiceResponse,
)
from opentelemetry.proto.common.v1.common_pb2 import AnyValue, KeyValue


def value_of(value: AnyValue) -> Any:
    kind = value.WhichOneof("value")
    if kind == "array_value":
        return [value_of(each) for each in value.array_value.values]
    return getattr(value, kind) if kind else None


def attributes_of(pairs: Any) -> dict[str, Any]:
    found: list[KeyValue] = list(pairs)
    return {each.key: value_of(each.value) for each in found}


class OtlpReceiver:
    """A collector in a context, with the received `spans`, `events`, `resources` and `headers`.

    While its `status` is no 200, it takes nothing.
    """

    def __init__(self) -> None:
        self.spans: list[Any] = []
        self.events: list[Any] = []
        self.resources: list[dict[str, Any]] = []
        self.headers: list[dict[str, str]] = []
        self.status = 200
        self.asked = 0
        outer = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["content-length"]))
                if self.headers.get("content-encoding") == "gzip":
                    body = gzip.decompress(body)
                outer.asked += 1
                answer = outer.take(self.path, dict(self.headers), body)
                self.send_response(outer.status)
                self.send_header("content-type", "application/x-protobuf")
                self.send_header("content-length", str(len(answer)))
                self.end_headers()
                self.wfile.write(answer)

            def log_message(self, *_: object) -> None: ...

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._thread = threading.Thread(
            target=self._server.serve_forever, args=(0.05,), daemon=True
        )

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._server.server_address[1]}"

    def take(self, path: str, headers: dict[str, str], body: bytes) -> bytes:
        if self.status != 200:
            return b""
        self.headers.append({name.lower(): value for name, value in headers.items()})
        if path == "/v1/traces":
            traces = ExportTraceServiceRequest.FromString(body)
            for each in traces.resource_spans:
                self.resources.append(attributes_of(each.resource.attributes))
                self.spans += [span for scope in each.scope_spans for span in scope.spans]
            return bytes(ExportTraceServiceResponse().SerializeToString())
        assert path == "/v1/logs"
        logs = ExportLogsServiceRequest.FromString(body)
        for one in logs.resource_logs:
            self.resources.append(attributes_of(one.resource.attributes))
            self.events += [record for scope in one.scope_logs for record in scope.log_records]
        return bytes(ExportLogsServiceResponse().SerializeToString())

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join(5)
