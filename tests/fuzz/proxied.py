"""Real proxies before an upstream that sends whatever a fuzzer chooses, and what must hold.

One proxy blocks everything, one blocks calls of tools, and one only observes. Whatever upstream
sends, none of them fails: there is no internal error and no error of a scorer.
"""

from __future__ import annotations

import json
import logging
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import structlog

from proxy.formats.base.openai import OF_ERRORS, is_error, is_failed
from tests.running.live_proxy import OBSERVE, LiveProxy
from tests.servers.undecided import PATHS, SECRET, AnyUpstream

BLOCK_ALL = "version: 1\nname: all\nmode: enforce\nrules: []\ndefault: {block: {}}\n"
BLOCK_CALLS = """
version: 1
name: calls
mode: enforce
rules:
  - {name: any call, when: {tools: any}, then: {block: {}}}
default: deliver
"""
POLICIES = {"all": BLOCK_ALL, "calls": BLOCK_CALLS, "watch": OBSERVE}
OURS = ("internal_error", "scorer_failed", "calibrator_failed")


def _first(members: list[tuple[str, Any]]) -> dict[str, Any]:
    return dict(reversed(members))


def _folded(members: list[tuple[str, Any]]) -> dict[str, Any]:
    return {name.casefold(): value for name, value in members}


READERS: tuple[Callable[[list[tuple[str, Any]]], dict[str, Any]], ...] = (dict, _first, _folded)
"""Of a member that stands twice the last or the first counts; some do not tell cases apart."""


@dataclass(frozen=True)
class Rig:
    """One upstream, and a proxy for each of the policies."""

    upstream: AnyUpstream
    proxies: dict[str, LiveProxy]

    def ask(self, policy: str, surface: str, body: bytes, **fields: str) -> tuple[int, bytes]:
        """Return the status, and the header fields and the body in one, as far as they arrived."""
        headers = {"content-type": "application/json", **fields}
        client = self.proxies[policy].http
        with client.stream("POST", PATHS[surface], content=body, headers=headers) as response:
            parts = [repr(response.headers.raw).encode()]
            try:
                parts += response.iter_raw()
            except httpx.RemoteProtocolError:
                parts.append(b"")
        return response.status_code, b"".join(parts)


@contextmanager
def rig(policies: Mapping[str, str] = POLICIES) -> Iterator[Rig]:
    """Run an upstream and a proxy for each policy; the proxies' log is not written."""
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        upstream = stack.enter_context(AnyUpstream())
        proxies = {}
        for name, policy in policies.items():
            (folder / name).mkdir()
            proxies[name] = LiveProxy(
                upstream.base_url,
                folder / name,
                policy=policy,
                upstream={"speaks": "both"},
                records={"keep_days": 0},
            )
            stack.callback(proxies[name].stop)
        with quiet():
            yield Rig(upstream, proxies)


@contextmanager
def quiet() -> Iterator[None]:
    """Silence the log, which would have a line for each of so many requests."""
    before = structlog.get_config()
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.ERROR))
    try:
        yield
    finally:
        structlog.configure(**before)


def check(policy: str, got: bytes, calls: bool) -> str:
    """Return whether a case passed or was blocked; raise AssertionError for a finding."""
    for word in OURS:
        assert f'"{word}"'.encode() not in got, f"{policy}: {word} in {got!r}"
        assert f"b'{word}'".encode() not in got, f"{policy}: {word} in {got!r}"
    has_secret = SECRET.encode() in got
    if policy == "all":
        answer = _but_for_errors(got)
        assert SECRET.encode() not in answer, f"a policy that blocks all let this through: {got!r}"
    if policy == "calls" and calls and has_secret:
        assert not executed(got), f"a policy that blocks calls let this through: {got!r}"
    return "passed" if has_secret else "blocked"


def _but_for_errors(got: bytes) -> bytes:
    """Return the reply without errors: what upstream says in an error is no answer."""
    at = got.find(b")]") + 2
    head, body = got[:at], got[at:]
    if _is_error(body):
        return head
    return head + b"\n".join(
        line for line in body.splitlines() if not _is_error(line.removeprefix(b"data:"))
    )


def _is_error(text: bytes) -> bool:
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        return False
    if not isinstance(value, dict) or not value.keys() <= OF_ERRORS | {"choices"}:
        return False
    return is_failed(value) if value.get("choices") else is_error(value)


def executed(got: bytes) -> bool:
    """Whether an ordinary client of any of the formats would execute a call with the secret."""
    return any(_calls(value) for value in _values_in(got))


def _values_in(got: bytes) -> Iterator[Any]:
    body = got[got.find(b")]") + 2 :]
    whole = [body, *(line[5:] for line in body.splitlines() if line.startswith(b"data:"))]
    for text in whole:
        for reader in READERS:
            try:
                yield json.loads(text, object_pairs_hook=reader)
            except (ValueError, RecursionError):
                break


def _calls(value: Any) -> bool:
    if not isinstance(value, dict):
        return False
    choices = value.get("choices")
    for choice in choices if isinstance(choices, list) else ():
        message = choice.get("delta", choice.get("message")) if isinstance(choice, dict) else None
        listed = message.get("tool_calls") if isinstance(message, dict) else None
        for call in listed if isinstance(listed, list) else ():
            function = call.get("function") if isinstance(call, dict) else None
            if isinstance(function, dict) and SECRET in str(function.get("arguments")):
                return True
    response = value.get("response") if isinstance(value.get("response"), dict) else value
    items = [value.get("item"), *(_listed(response, "output"))]
    blocks = [value.get("content_block"), *_listed(value, "content")]
    return any(_is(each, "function_call", "arguments") for each in items) or any(
        _is(each, "tool_use", "input") for each in blocks
    )


def _listed(value: Any, key: str) -> list[Any]:
    listed = value.get(key) if isinstance(value, dict) else None
    return listed if isinstance(listed, list) else []


def _is(value: Any, kind: str, member: str) -> bool:
    is_kind = isinstance(value, dict) and value.get("type") == kind
    return is_kind and SECRET in json.dumps(value.get(member))
