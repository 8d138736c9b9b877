"""Fixtures that all tests share: faulty upstreams, proxies, a browser, databases."""

from __future__ import annotations

import gc
import os
import signal
import ssl
import uuid
from collections.abc import Callable, Generator, Iterator
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import httpx
import hypothesis
import pytest
import typer.testing

from tests.builders.tiny_models import Family, OfFamily, write_tiny_adapter, write_tiny_base
from tests.nightly.selection import pytest_ignore_collect as pytest_ignore_collect
from tests.nightly.selection import pytest_itemcollected as pytest_itemcollected
from tests.running.live_proxy import LiveProxy, ProxyProcess, proxies
from tests.running.postgres import PostgresServer
from tests.running.warm_cli import share_server
from tests.servers.faulty_upstream import FaultyUpstream
from tests.servers.messages_upstream import MessagesUpstream
from tests.servers.responses_upstream import ResponsesUpstream
from tests.sharing.checkpoint import read_once
from tests.sharing.statements import compiled_once

if TYPE_CHECKING:
    from playwright.sync_api import Browser

    from tests.running.browser import Visit

# Under nohup, in the background of a script and in some containers the process that runs the tests
# ignores SIGINT, and its children would ignore it too.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

StartProxy = Callable[..., LiveProxy]

# A test that takes long on a busy machine is no failure. `--hypothesis-profile thorough` tries more
# examples.
hypothesis.settings.register_profile("suite", deadline=None, max_examples=30)
hypothesis.settings.register_profile("thorough", deadline=None, max_examples=300)
hypothesis.settings.load_profile("suite")

# objects before a collection, and younger collections before an older one; the oldest walks through
# everything, which takes 0.1 s
COLLECTED_AFTER = 5_000, 20, 100
# The slowest files, in the order in which they start. If a worker began one of them last, the
# other workers would wait for it. This needs xdist's `--no-loadscope-reorder`.
LONGEST = (
    *("test_fuzz.py", "test_console_unseen.py", "test_hostile_budget.py", "test_client_matrix.py"),
    *("test_llm_train.py", "test_hostile_http.py", "test_console_pages.py", "test_faults.py"),
    *("test_examples.py", "test_example_agents.py", "test_stream_limits.py", "test_tune.py"),
    *("test_certified.py", "test_scores.py", "test_holds.py", "test_reload.py"),
    *("test_undecided.py", "test_recalibrate_from_store.py", "test_equality.py", "test_keys.py"),
    *("test_otel.py", "test_action_matrix.py", "test_stand_in.py", "test_ray_scoring.py"),
    *("test_evaluate_command.py", "test_ownership.py"),
)


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """Collect no garbage during collection, and exempt what is left: walking it takes 1 s."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.enable()
        gc.set_threshold(*COLLECTED_AFTER)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Sort the longest files to the front; the others keep their order."""
    places = {name: place for place, name in enumerate(LONGEST)}
    items.sort(key=lambda item: places.get(item.path.name, len(places)))


def pytest_sessionstart(session: pytest.Session) -> None:
    """Start one server of commands for all workers, before they are started."""
    if session.config.getoption("numprocesses", None):
        share_server()


@pytest.fixture(scope="session", autouse=True)
def shared_certificates() -> Iterator[None]:
    """Give all HTTP clients one set of trusted certificates: reading it takes 30 ms of CPU each
    time.
    """
    import httpx._transports.default as transports

    @lru_cache
    def shared(certificates: str | None, folder: str | None) -> ssl.SSLContext:
        return httpx.create_ssl_context()

    def context(verify: Any = True, cert: Any = None, trust_env: bool = True) -> ssl.SSLContext:
        if verify is not True or cert is not None:
            return httpx.create_ssl_context(verify, cert, trust_env)
        names = ("SSL_CERT_FILE", "SSL_CERT_DIR") if trust_env else ()
        return shared(*(os.environ.get(name) for name in names)) if names else shared(None, None)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(transports, "create_ssl_context", context)
        yield


@pytest.fixture(scope="session", autouse=True)
def shared_commands() -> Iterator[None]:
    """Build each typer command once, not at each run: building it takes 15 ms of CPU."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(typer.testing, "_get_command", lru_cache(typer.testing._get_command))
        yield


@pytest.fixture(scope="session", autouse=True)
def shared_checkpoint() -> Iterator[None]:
    """Read the shipped calibrator only once."""
    with read_once():
        yield


@pytest.fixture(scope="session", autouse=True)
def shared_statements() -> Iterator[None]:
    """Share compiled SQL statements among databases: compiling takes half of a proxy's start."""
    with compiled_once():
        yield


@pytest.fixture(scope="session", autouse=True)
def direct_loopback() -> Iterator[None]:
    """Connect to this machine directly, even if a forward proxy is configured."""
    with pytest.MonkeyPatch.context() as patch:
        for name in ("NO_PROXY", "no_proxy"):
            patch.setenv(name, ",".join(filter(None, [os.environ.get(name), "127.0.0.1"])))
        yield


@pytest.fixture(scope="session", autouse=True)
def kept_folder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Keep the scores that commands store in a folder of this run, not in the user's."""
    folder = tmp_path_factory.mktemp("kept")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PINOCCHIO_CACHE", str(folder))
        yield folder


@pytest.fixture(autouse=True)
def kept_scores_apart(kept_folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Keep each test's stored scores in a folder of its own."""
    monkeypatch.setenv("PINOCCHIO_CACHE", str(kept_folder / uuid.uuid4().hex))


@pytest.fixture(scope="session")
def tiny_bases(tmp_path_factory: pytest.TempPathFactory) -> OfFamily:
    """Return a function that gives the folder of a tiny random base model, made once per family."""
    made: dict[str, Path] = {}

    def base(family: Family) -> Path:
        if family not in made:
            made[family] = write_tiny_base(tmp_path_factory.mktemp("bases") / family, family)
        return made[family]

    return base


@pytest.fixture(scope="session")
def tiny_checkpoint(tiny_bases: OfFamily, tmp_path_factory: pytest.TempPathFactory) -> OfFamily:
    """Return a function that gives a checkpoint with a random adapter, made once per family.

    Tests that change a checkpoint copy it first.
    """
    made: dict[str, Path] = {}

    def checkpoint(family: Family) -> Path:
        if family not in made:
            folder = tmp_path_factory.mktemp(family) / "tiny"
            made[family] = write_tiny_adapter(folder, tiny_bases(family), family)
        return made[family]

    return checkpoint


@pytest.fixture(scope="session")
def running_upstream() -> Iterator[FaultyUpstream]:
    with FaultyUpstream() as upstream:
        yield upstream


@pytest.fixture
def upstream(running_upstream: FaultyUpstream) -> FaultyUpstream:
    """Return the faulty upstream, which remembers the requests of this test only."""
    running_upstream.forget()
    return running_upstream


@pytest.fixture(scope="module")
def start_proxy(
    running_upstream: FaultyUpstream, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[StartProxy]:
    """Yield a function that starts a proxy before the faulty upstream, or returns a running one.

    A running proxy is returned if it has the same options.
    """
    yield from _starting(running_upstream.base_url, tmp_path_factory)


def _starting(base_url: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[StartProxy]:
    def make(**options: Any) -> LiveProxy:
        return LiveProxy(base_url, tmp_path_factory.mktemp("proxy"), **options)

    with proxies(make) as start:
        yield start


@pytest.fixture(scope="session")
def running_responses() -> Iterator[ResponsesUpstream]:
    with ResponsesUpstream() as upstream:
        yield upstream


@pytest.fixture(scope="session")
def running_messages() -> Iterator[MessagesUpstream]:
    with MessagesUpstream() as upstream:
        yield upstream


@pytest.fixture(scope="module")  # session scope: its event loop would disturb asynchronous tests
def browser() -> Iterator[Browser]:
    """Yield a real Chromium."""
    from tests.running.browser import chromium

    with chromium() as found:
        yield found


@pytest.fixture(scope="module")
def visit(browser: Browser, proxy: LiveProxy) -> Iterator[Visit]:
    """Yield a reviewer at the desk of the module's `proxy`."""
    from tests.running.browser import visiting

    with visiting(browser, proxy) as found:
        yield found


@pytest.fixture
def responses_upstream(running_responses: ResponsesUpstream) -> ResponsesUpstream:
    """Return the upstream for responses, which remembers the requests of this test only."""
    running_responses.forget()
    return running_responses


@pytest.fixture(scope="module")
def start_responses(
    running_responses: ResponsesUpstream, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[StartProxy]:
    """Yield a function like `start_proxy`'s, for proxies in front of the upstream for responses."""
    yield from _starting(running_responses.base_url, tmp_path_factory)


@pytest.fixture(scope="module")
def proxy(start_proxy: StartProxy) -> LiveProxy:
    """Start a proxy that only observes: it adds the confidence and changes nothing else."""
    return start_proxy()


@pytest.fixture(scope="session")
def postgres() -> Iterator[PostgresServer]:
    """Yield a PostgreSQL server, on which each test creates its own database."""
    with PostgresServer() as server:
        yield server


@pytest.fixture
def postgres_url(postgres: PostgresServer) -> Iterator[str]:
    """Yield the URL of an empty PostgreSQL database."""
    url = postgres.new_database()
    yield url
    if postgres.is_in_memory:  # dropping a database on a disk takes longer than it is worth
        postgres.drop(url)


@pytest.fixture(params=["sqlite", "postgresql"])
def store_url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """Return the URL of an empty store, on one database after the other."""
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path}/held.db"
    url: str = request.getfixturevalue("postgres_url")
    return url


@pytest.fixture(scope="session")
def server(
    running_upstream: FaultyUpstream, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[ProxyProcess]:
    """Start `pinocchio serve` in a process of its own, with a key for its upstream."""
    folder = tmp_path_factory.mktemp("server")
    config = f"""
upstreams:
  faulty: {{base_url: "{running_upstream.base_url}", api_key: sk-configured-canary}}
  demo: {{demo: true}}
models:
  - {{match: demo, upstream: demo}}
  - {{match: "*", upstream: faulty}}
calibrator: {{checkpoint: "fake:0.73"}}
store: sqlite:///{folder}/held.db
"""
    with ProxyProcess(folder, config) as process:
        yield process
