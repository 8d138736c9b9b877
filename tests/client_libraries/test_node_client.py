"""The official Node client works through the proxy when its `baseURL` is changed.

The tests are in `node/client.test.mjs`, which runs once; each of them is a test here. The upstream
records what the client cannot see: how many requests arrived, with what content, and which of them
the client abandoned.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.conftest import StartProxy
from tests.node.runner import failures_of, run_node, sentences_of
from tests.servers.faulty_upstream import FaultyUpstream, Received

FOLDER = Path(__file__).parent.parent / "node"
PROGRAM = "client.test.mjs"
POLICY = """
version: 1
name: node
mode: enforce
on_score_error: deliver
rules:
  - {name: told to, when: {tags: [held]}, then: {hold: {queue: review, reply: error}}}
default: deliver
"""


CASES = sentences_of(FOLDER / PROGRAM)


@dataclass(frozen=True)
class Run:
    """One run of the Node program: each test's failure or None, and the requests to upstream."""

    failures: dict[str, str | None]
    requests: list[Received]
    output: str

    def requests_of(self, case: str) -> list[Received]:
        return [request for request in self.requests if request.header("x-case") == case]


@pytest.fixture(scope="module")
def run(start_proxy: StartProxy, running_upstream: FaultyUpstream) -> Run:
    proxy = start_proxy(policy=POLICY)
    running_upstream.forget()
    done = run_node(
        FOLDER,
        "--test-reporter=junit",
        PROGRAM,
        PINOCCHIO_URL=proxy.base_url,
        UPSTREAM_URL=running_upstream.base_url,
    )
    output = done.stdout + done.stderr
    assert done.stdout.startswith("<?xml"), output
    return Run(failures_of(done.stdout), list(running_upstream.requests), output)


@pytest.mark.parametrize("case", CASES)
def test_node(run: Run, case: str) -> None:
    """The Node test of this name passed."""
    assert case in run.failures, run.output
    assert run.failures[case] is None, run.failures[case]


def test_no_node_test_is_left_out(run: Run) -> None:
    assert sorted(run.failures) == sorted(CASES)


def test_upstream_gets_the_same_request_as_without_the_proxy(run: Run) -> None:
    """Through the proxy, upstream gets the same method, target, body and header fields."""
    direct = {r.header("x-case"): r for r in run.requests if is_case(r, "direct ")}
    via = {r.header("x-case"): r for r in run.requests if is_case(r, "via ")}
    assert len(direct) == len(via) == 15
    for case, request in via.items():
        other = direct[str(case).replace("via", "direct")]
        assert (request.method, request.target) == (other.method, other.target)
        assert request.body == other.body
        assert crossing(request) == crossing(other)


def is_case(request: Received, beginning: str) -> bool:
    return str(request.header("x-case")).startswith(beginning)


def crossing(request: Received) -> dict[str, str]:
    """Return a request's header fields, without those of one connection and the case's mark."""
    own = ("host", "connection", "keep-alive", "x-case", "x-pinocchio-via")
    return {name: value for name, value in request.headers if name not in own}


def test_a_retry_is_one_more_request_that_says_so(run: Run) -> None:
    """A retry is one more request, which says that it is a retry."""
    counts = [request.header("x-stainless-retry-count") for request in run.requests_of("retried")]
    assert counts == ["0", "1"]


@pytest.mark.parametrize("stream", ["false", "true"])
def test_a_held_reply_is_paid_for_once(run: Run, stream: str) -> None:
    assert len(run.requests_of(f"held {stream}")) == 1


def test_a_disconnect_closes_the_upstream_call(run: Run) -> None:
    """When a client disconnects, its call upstream is closed."""
    left = run.requests_of("aborted")
    assert len(left) == 4
    assert all(request.is_cut_off(within_s=5) for request in left)


def test_our_own_headers_do_not_reach_upstream(run: Run) -> None:
    assert run.requests_of("held true")[0].header("x-pinocchio-tags") is None
