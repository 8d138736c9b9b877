"""A fuzzer of the review desk's API: schemathesis makes requests from its OpenAPI document.

A finding is an answer of 500 or more, or one that is not JSON where JSON is promised.
"""

from __future__ import annotations

import json
import random
import tempfile
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import hypothesis
import schemathesis
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis.errors import Unsatisfiable
from schemathesis.core.errors import InvalidSchema

from tests.fuzz.fuzzing import Case
from tests.fuzz.proxied import quiet
from tests.running.live_proxy import LiveProxy
from tests.servers.faulty_upstream import JSON, Response
from tests.servers.undecided import ANSWERS, HOLD_ALL, PATHS, AnyUpstream, asking

TOKEN = "desk-token"
DOCUMENT = "/pinocchio/v1/openapi.json"
STREAMING = "text/event-stream"
DRAWN = 6  # the last of this many examples is used; the first ones are plain


@contextmanager
def cases() -> Iterator[Case]:
    with tempfile.TemporaryDirectory() as folder, AnyUpstream() as upstream, quiet():
        proxy = LiveProxy(
            upstream.base_url,
            Path(folder),
            policy=HOLD_ALL,
            upstream={"speaks": "both"},
            has_desk=True,
            admin={"token": TOKEN},
        )
        try:
            ids = [_held(proxy, upstream, surface) for surface in PATHS]
            document = proxy.desk.get(DOCUMENT).json()
            schema = schemathesis.openapi.from_dict(document)
            operations = [found.ok() for found in schema.get_all_operations()]
            yield lambda chance: _case(chance, proxy, operations, ids)
        finally:
            proxy.stop()


def _held(proxy: LiveProxy, upstream: AnyUpstream, surface: str) -> str:
    """Return the id of a reply that is held."""
    upstream.answer = Response([json.dumps(ANSWERS[surface]).encode()], headers=JSON)
    fields = {"content-type": "application/json"}
    got = proxy.http.post(PATHS[surface], content=asking(surface), headers=fields)
    return got.headers["x-pinocchio-review-id"]


def _case(
    chance: random.Random, proxy: LiveProxy, operations: Sequence[Any], ids: Sequence[str]
) -> str:
    operation = chance.choice(operations)
    made = _made(operation, chance.randrange(2**32))
    if made is None:
        return "nothing to ask"
    if "id" in (made.path_parameters or {}) and chance.random() < 0.7:
        made.path_parameters["id"] = chance.choice(ids)
    try:
        sent = made.as_transport_kwargs(base_url=proxy.admin.url if proxy.admin else "")
    except (ValueError, TypeError):
        return "nothing that could be sent"
    line = f"{sent['method']} {sent['url']} {sent.get('params')} {sent.get('json')!r}"
    url = sent["url"]
    body = sent.get("data") or (json.dumps(sent["json"]) if "json" in sent else None)
    request = proxy.desk.build_request(
        sent["method"],
        url,
        params=sent.get("params") or None,
        content=body if isinstance(body, str | bytes) else None,
        headers={"content-type": "application/json"} if body else None,
        timeout=20,
    )
    response = proxy.desk.send(request, stream=True)
    try:
        if response.headers.get("content-type", "").startswith(STREAMING):
            next(response.iter_raw())  # it goes on as long as the client reads
            return "a stream"
        text = response.read()
    finally:
        response.close()
    assert response.status_code < 500, f"{response.status_code} {text!r}\n{line}"
    if response.headers.get("content-type", "").startswith("application/json"):
        json.loads(text)
    return str(response.status_code)


def _made(operation: Any, seed: int) -> Any:
    """Return one request for an operation, or None if its schema allows none."""
    drawn: list[Any] = []
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")

        @hypothesis.seed(seed)
        @settings(
            max_examples=DRAWN,
            database=None,
            deadline=None,
            phases=[Phase.generate],
            suppress_health_check=list(HealthCheck),
        )
        @given(case=operation.as_strategy())
        def draw(case: Any) -> None:
            drawn.append(case)

        try:
            draw()
        except (Unsatisfiable, InvalidSchema):
            return None
    return drawn[-1] if drawn else None
