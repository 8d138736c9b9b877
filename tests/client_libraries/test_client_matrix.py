"""Real client libraries work through the proxy, each in its own environment, if the URL is changed.

The cases of a client are in `clients/*_cases.py` and `node/*.test.mjs`; each of them is a test
here. Those of the official libraries run with the suite, those of libraries built on them with
`-m slow`. The clients run in environments of their own (`scripts/setup_clients`), a process for
each and two at a time, against one proxy in front of `clients_upstream.py`. A case can ask this
upstream which requests arrived and which clients disconnected.
"""

from __future__ import annotations

import ast
import subprocess
import sys
import xml.etree.ElementTree as ElementTree
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import certifi
import pytest
from _pytest.mark.structures import ParameterSet

from tests.node.runner import SKIPPED, failures_of, run_node, sentences_of
from tests.running.live_proxy import ROOT, LiveProxy, SightedScorer, environment
from tests.servers.clients_upstream import ClientsUpstream
from tests.sharing.captured_logs import capture_logs

SCORED_SURFACES = {"chat", "completions", "responses", "messages"}
UPSTREAM: dict[str, Any] = {"speaks": "both"}  # of the section in proxy.yaml, beside `base_url`
POLICY = """
version: 1
name: clients
mode: enforce
on_score_error: deliver
rules:
  - name: shown as a placeholder
    when: {model: held-placeholder*}
    then: {hold: {queue: review, reply: placeholder}}
  - {name: refused, when: {model: held-*}, then: {hold: {queue: review, reply: error}}}
default: deliver
"""

PROGRAMS = Path(__file__).parent.parent / "clients"
NODE = Path(__file__).parent.parent / "node"
TIMEOUT_S = 600  # against hanging: the imports take minutes on a busy machine
IN_NODE = "node"
SELDOM = "tests.clients.seldom_collecting"  # makes imports take a seventh less CPU time
Failures = dict[str, str | None]  # case -> what went wrong


@dataclass(frozen=True)
class Client:
    """A library and the program that uses it."""

    program: Path
    environment: str = ""  # below .venv-clients; the suite's own where it is empty, or Node
    is_slow: bool = False  # its imports take seconds, and it speaks through an official library

    def cases(self) -> list[str]:
        """Return the names of the client's tests, without importing them."""
        if self.program.suffix == ".mjs":
            return sentences_of(self.program)
        tree = ast.parse(self.program.read_text())
        functions = [node.name for node in tree.body if isinstance(node, ast.FunctionDef)]
        return [name for name in functions if name.startswith("test_")]


CLIENTS = {
    "openai-2": Client(PROGRAMS / "openai_cases.py", is_slow=True),
    "openai-3": Client(PROGRAMS / "openai_cases.py", "newest"),
    "anthropic": Client(PROGRAMS / "anthropic_cases.py", "newest"),
    "agents": Client(PROGRAMS / "agents_cases.py", "newest", is_slow=True),
    "langchain": Client(PROGRAMS / "langchain_cases.py", "newest", is_slow=True),
    "pydantic-ai": Client(PROGRAMS / "pydantic_ai_cases.py", "newest", is_slow=True),
    "approvals": Client(PROGRAMS / "approvals_cases.py", "newest", is_slow=True),
    "instructor": Client(PROGRAMS / "instructor_cases.py", "instructor", is_slow=True),
    "litellm": Client(PROGRAMS / "litellm_cases.py", "litellm", is_slow=True),
    # It changes the Agents SDK's defaults.
    "shown": Client(PROGRAMS / "shown_cases.py", "newest", is_slow=True),
    "shown-litellm": Client(PROGRAMS / "shown_cases.py", "litellm", is_slow=True),
    "ai-sdk": Client(NODE / "ai-sdk.test.mjs", IN_NODE),
    "openai-npm": Client(NODE / "responses.test.mjs", IN_NODE),
    "anthropic-npm": Client(NODE / "anthropic.test.mjs", IN_NODE),
}
CASES = [(client, case) for client, described in CLIENTS.items() for case in described.cases()]


def client_params(client: str, *more: str) -> ParameterSet:
    """Return a client's test parameters, marked slow if the client is slow."""
    marks = [pytest.mark.slow] if CLIENTS[client].is_slow else []
    return pytest.param(client, *more, id=": ".join([client, *more]), marks=marks)


def run_all(
    environment_name: str, wanted: set[str], junit: Path, **env: str
) -> dict[str, Failures]:
    """Run all cases of an environment's clients in one process, which shares their imports.

    Return the failures by client.
    """
    clients = {
        name: c
        for name, c in CLIENTS.items()
        if c.environment == environment_name and name in wanted
    }
    if environment_name == IN_NODE:
        return {name: _run_in_node(client.program, **env) for name, client in clients.items()}
    python = ROOT / ".venv-clients" / environment_name / "bin/python"
    if environment_name:
        assert python.exists(), f"{python} is missing: run scripts/setup_clients"
    options = ["-c", str(PROGRAMS / "pytest.ini"), "-p", SELDOM, "--junitxml", str(junit)]
    done = subprocess.run(
        [
            python if environment_name else sys.executable,
            "-m",
            "pytest",
            *options,
            *(client.program for client in clients.values()),
        ],
        capture_output=True,
        text=True,
        cwd=ROOT,
        env=environment() | env,
        timeout=TIMEOUT_S,
    )
    assert junit.exists(), done.stdout + done.stderr
    failures = _failures_by_function(junit)
    return {name: failures.get(client.program.stem, {}) for name, client in clients.items()}


def _run_in_node(program: Path, **env: str) -> Failures:
    done = run_node(NODE, "--test-reporter=junit", program.name, **env)
    assert done.stdout.startswith("<?xml"), done.stdout + done.stderr
    return failures_of(done.stdout)


def _failures_by_function(junit: Path) -> dict[str, Failures]:
    """Return failures by program; the variants `test_x[a]` and `test_x[b]` are one case."""
    programs: dict[str, Failures] = {}
    for case in ElementTree.parse(junit).iter("testcase"):
        name = case.attrib["name"]
        failures = programs.setdefault(case.attrib["classname"].rpartition(".")[2], {})
        function = name.partition("[")[0]
        if case.find("skipped") is not None:
            failures.setdefault(function, SKIPPED)
            continue
        messages = [f"{name}: {child.text}" for child in case if child.tag in ("failure", "error")]
        before = failures.get(function)
        known = before if before != SKIPPED else None
        failures[function] = "\n".join(filter(None, [known, *messages])) or None
    return programs


def one_certificate(folder: Path) -> Path:
    """Write a file with only the first trusted certificate; return its path.

    A client reads all 150 each time it is created.
    """
    end = "-----END CERTIFICATE-----\n"
    path = folder / "one.pem"
    path.write_text(certifi.contents().partition(end)[0] + end)
    return path


Runs = dict[str, "Future[dict[str, Failures]]"]  # by environment


@pytest.fixture(scope="module")
def runs(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Runs]:
    """Run all clients that are selected; return the future of each environment's failures."""
    items: list[Any] = [item for item in request.session.items if item.path == request.path]
    wanted = [item.callspec.params["client"] for item in items]
    folder = tmp_path_factory.mktemp("clients")
    with capture_logs(), ClientsUpstream() as upstream, ThreadPoolExecutor(2) as pool:
        scorer = SightedScorer()
        proxy = LiveProxy(
            upstream.base_url, folder, policy=POLICY, upstream=UPSTREAM, scorer=scorer
        )
        env = {
            "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1",  # their imports take longer than a client's
            "SSL_CERT_FILE": str(one_certificate(folder)),
            "PINOCCHIO_URL": proxy.base_url,
            "UPSTREAM_URL": upstream.url,
            "SCORED_SURFACES": ",".join(sorted(SCORED_SURFACES)),
            "LITELLM_LOCAL_MODEL_COST_MAP": "True",  # otherwise it fetches prices online
        }
        yield {
            name: pool.submit(run_all, name, {*wanted}, folder / f"{name or 'own'}.xml", **env)
            for name in dict.fromkeys(CLIENTS[client].environment for client in wanted)
        }
        pool.shutdown(cancel_futures=True)
        proxy.stop()


def failures_in(runs: Runs, client: str) -> Failures:
    return runs[CLIENTS[client].environment].result()[client]


@pytest.mark.parametrize(("client", "case"), [client_params(*each) for each in CASES])
def test_client(runs: Runs, client: str, case: str) -> None:
    """The client's test of this name passed, in all its variants."""
    failures = failures_in(runs, client)
    assert case in failures
    if failures[case] == SKIPPED:
        pytest.skip("only for a surface that is scored")
    assert failures[case] is None, failures[case]


@pytest.mark.parametrize("client", [client_params(client) for client in CLIENTS])
def test_no_case_is_left_out(runs: Runs, client: str) -> None:
    """Every case that a client's program runs is a test here."""
    assert sorted(failures_in(runs, client)) == sorted(CLIENTS[client].cases())
