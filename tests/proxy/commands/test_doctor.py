"""`pinocchio doctor` on healthy installations, and on faults of each part."""

from __future__ import annotations

import json
import math
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from email.utils import formatdate
from functools import partial
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from calibrator import Item, Score
from calibrator.checkpoints import extras
from policies import Certificate, LabelledScore, Scope, certify
from proxy.commands.app import cli
from proxy.commands.checkup import doctor as doctor_module
from proxy.commands.checkup import upstreams as upstreams_module
from proxy.commands.checkup.doctor import try_calibrator
from proxy.commands.checkup.machine import Machine, Processes, cores, free_memory
from proxy.gate.secret_keys import digest_of, new_key_id, new_secret
from proxy.store.database.client_keys import ClientKey, KeyStore
from proxy.store.database.database import open_engine
from proxy.store.database.verdicts import VerdictStore, Withdrawal
from tests.conftest import StartProxy
from tests.proxy.observe.otlp_receiver import OtlpReceiver
from tests.proxy.optional.scores.score_servers import LangfuseServer, PhoenixServer
from tests.running.live_proxy import ROOT, free_port

Json = dict[str, Any]
Findings_ = dict[str, tuple[str, str]]
FAKE = "{checkpoint: 'fake:0.7'}"
CONFIG = """
upstreams: {{there: {{base_url: "{upstream}"{key}}}}}
models: [{{match: "*", upstream: there}}]
calibrator: {calibrator}
store: "{store}"
{more}
"""


@contextmanager
def answering(
    status: int = 200, skew_s: float = 0.0, body: bytes = b"{}", waits_s: float = 0.0
) -> Iterator[str]:
    """Serve this answer to every request, with a clock of its own; yield the server's URL."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            time.sleep(waits_s)
            self.send_response(status)
            self.send_header("content-length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def date_time_string(self, timestamp: float | None = None) -> str:
            return formatdate(time.time() + skew_s, usegmt=True)

        def log_message(self, *_: object) -> None: ...

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True)
    thread.start()
    yield f"http://127.0.0.1:{server.server_address[1]}"
    server.shutdown()
    server.server_close()
    thread.join(5)


Examine = Callable[..., tuple[int, Findings_]]


@pytest.fixture
def examine(tmp_path: Path) -> Examine:
    """Return a function that writes a configuration and examines it.

    It returns the exit status and the finding on each part.
    """

    def examine(
        upstream: str,
        key: str = ", api_key: k",
        more: str = "",
        store: str = "",
        url: str = "",
        calibrator: str = FAKE,
    ) -> tuple[int, Findings_]:
        path = tmp_path / "proxy.yaml"
        store = store or f"sqlite:///{tmp_path}/held.db"
        path.write_text(
            CONFIG.format(upstream=upstream, key=key, more=more, store=store, calibrator=calibrator)
        )
        url = url or f"http://127.0.0.1:{free_port()}"
        arguments = ["doctor", "--config", str(path), "--json", "--url", url]
        done = CliRunner().invoke(cli, arguments)
        body = json.loads(done.stdout.splitlines()[-1])  # lines of the log come before it
        found: Findings_ = {}
        for each in body["findings"]:
            found.setdefault(each["about"], (each["level"], each["text"]))
        failed = [each for each in body["findings"] if each["level"] == "fail"]
        assert (done.exit_code, body["is_well"]) == (int(bool(failed)), not failed), done.stderr
        return done.exit_code, found

    return examine


def test_a_proxy_that_is_well_is_told_so_part_by_part(
    examine: Examine, start_proxy: StartProxy, tmp_path: Path
) -> None:
    """A healthy proxy gets a line for each part and status 0, and nothing is created."""
    proxy = start_proxy()
    with answering() as upstream:
        status, found = examine(upstream, url=proxy.url)
    assert status == 0
    assert {about: level for about, (level, _) in found.items()} == {
        "configuration": "ok",
        "upstream there": "ok",
        "calibrator": "ok",
        "workers": "ok",
        "store": "ok",
        "disk": "ok",
        "clock": "ok",
        "limits": "ok",
        "keys": "ok",
        "running proxy": "ok",
    }
    assert "policy observe (shadow), 1 upstream" in found["configuration"][1]
    assert "it answers (200, " in found["upstream there"][1]
    assert "the canary got 0.7000 in" in found["calibrator"][1]
    assert "the start will make it" in found["store"][1]
    assert found["running proxy"][1].endswith("ready, generation 1, calibrator words@1")
    assert not (tmp_path / "held.db").exists()


def test_lines_are_for_people(tmp_path: Path) -> None:
    """Lines have level, part and a sentence; failures come last, with the exit status."""
    path = tmp_path / "proxy.yaml"
    upstream = f"http://127.0.0.1:{free_port()}"
    path.write_text(
        CONFIG.format(
            upstream=upstream,
            key="",
            more="",
            store="sqlite:///x.db",
            calibrator=FAKE,
        )
    )
    url = f"http://127.0.0.1:{free_port()}"
    done = CliRunner().invoke(cli, ["doctor", "--config", str(path), "--url", url])
    assert done.exit_code == 1
    lines = done.stdout.splitlines()
    assert lines[0].startswith("ok    configuration          ")
    assert lines[1].startswith("fail  upstream there         could not connect to upstream")
    assert "1 part failed: upstream there" in done.stderr
    without = ["doctor", "--config", str(path), "--url", url, "--no-calibrator"]
    assert "calibrator " not in CliRunner().invoke(cli, without).stdout


def test_a_configuration_that_cannot_be_used_is_all_there_is_to_say(tmp_path: Path) -> None:
    """An invalid configuration is the only finding, with file and line as `check` reports it."""
    path = tmp_path / "proxy.yaml"
    path.write_text("polices: observe\n")
    done = CliRunner().invoke(cli, ["doctor", "--config", str(path)])
    assert done.exit_code == 1
    [line] = done.stdout.splitlines()
    assert line.startswith("fail  configuration")
    assert "proxy.yaml:1: " in line


@pytest.mark.parametrize(
    ("status", "key", "level", "words"),
    [
        (401, ", api_key: k", "fail", "it refuses the key of the configuration (401"),
        (403, "", "ok", "it is there, and asks for the client's own key (403"),
        (404, "", "warn", "did you mean base_url: http://127.0.0.1:"),
        (429, "", "warn", "too many requests, or no credit (429"),
        (503, "", "fail", "it fails (503"),
    ],
)
def test_what_an_upstream_answers_is_judged(
    examine: Examine, status: int, key: str, level: str, words: str
) -> None:
    """Errors and refused keys of an upstream are failures; a missing key is none."""
    with answering(status) as upstream:
        _, found = examine(upstream, key=key)
    assert found["upstream there"][0] == level
    assert words in found["upstream there"][1]


def test_an_upstream_that_never_answers_is_not_waited_for(
    examine: Examine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All upstreams are asked at once, and one that never answers is given up after a while."""
    monkeypatch.setattr(upstreams_module, "UPSTREAM_S", 0.3)
    with answering(waits_s=1.0) as upstream:
        status, found = examine(upstream)
    assert (status, found["upstream there"]) == (1, ("fail", "no answer within 0.3 s"))


@pytest.mark.parametrize(("skew_s", "words"), [(3_600, "behind"), (-3_600, "ahead of")])
def test_a_clock_that_is_off_is_told(examine: Examine, skew_s: float, words: str) -> None:
    """A clock that is off is found by the date of upstream's reply."""
    with answering(skew_s=skew_s) as upstream:
        status, found = examine(upstream)
    level, text = found["clock"]
    assert (status, level) == (0, "warn")
    assert f"s {words} that of upstream there" in text
    assert 3_590 <= int(text.split()[0]) <= 3_610


class Broken:
    """Gives these confidences, one after the other."""

    name = "broken@1"

    def __init__(self, *values: float) -> None:
        self._values = iter(values)

    def score_batch(self, items: Sequence[Item]) -> list[Score]:
        values = [next(self._values) for _ in items]
        return [Score(value, value, False) for value in values]


@pytest.mark.parametrize(
    ("values", "words"),
    [
        ((0.5, math.nan, 0.5), "nan, which is no probability"),
        ((0.5, 1.5, 1.5), "1.5, which is no probability"),
        ((0.5, 0.5, 0.9), "0.5000, and then 0.9000"),
    ],
)
def test_a_canary_finds_a_calibrator_that_gives_no_probability(
    values: tuple[float, ...], words: str
) -> None:
    """A calibrator that gives no number, one beyond 1, or another one each time is a failure."""
    found = try_calibrator(lambda: Broken(*values), "x", None)
    assert found.level == "fail"
    assert words in found.text


class Large(Broken):
    """A calibrator that takes memory while it exists."""

    def __init__(self) -> None:
        super().__init__(0.5, 0.5, 0.5)
        self.weights = b"w" * 50_000_000


def test_the_memory_of_a_calibrator_is_what_it_takes_while_it_is_there() -> None:
    """A calibrator is closed and freed before `doctor` reports its memory.

    A process of its own has no threads of other tests that free memory meanwhile.
    """
    tells = (
        f"from {__name__} import Large, try_calibrator; "
        "print(try_calibrator(Large, 'x', None).memory)"
    )
    done = subprocess.run(
        [sys.executable, "-c", tells], cwd=ROOT, capture_output=True, text=True, timeout=180
    )
    assert done.returncode == 0, done.stderr
    assert int(done.stdout) > 45_000_000


def test_an_engine_that_is_not_there_fails(examine: Examine, tmp_path: Path) -> None:
    """An engine that is not there is a failure, as replies would have no number."""
    with answering() as upstream:
        path = tmp_path / "engine.yaml"
        engine = f"{{kind: scorer, base_url: 'http://127.0.0.1:{free_port()}'}}"
        calibrator = f"{{engine: {engine}}}"
        text = CONFIG.format(
            upstream=upstream, key="", more="", store="sqlite:///x.db", calibrator=calibrator
        )
        path.write_text(text)
        done = CliRunner().invoke(cli, ["doctor", "--config", str(path), "--json"])
    assert done.exit_code == 1
    found = {each["about"]: each for each in json.loads(done.stdout)["findings"]}
    assert found["calibrator"]["level"] == "fail"
    assert "engine scorer at http://127.0.0.1" in found["calibrator"]["text"]


def test_the_store_is_read_and_written(examine: Examine, store_url: str) -> None:
    """On both databases the store is read and written, and PostgreSQL's clock is compared too."""
    open_engine(store_url).dispose()
    with answering() as upstream:
        status, found = examine(upstream, store=store_url)
    assert status == 0
    assert "can be read, and holds replies (" in found["store"][1]
    assert found["review queue"] == ("ok", "0 held replies, 100,000 may wait")
    assert ("audit chain" in found) == store_url.startswith("postgresql")


def test_a_store_that_cannot_be_used_fails(examine: Examine, tmp_path: Path) -> None:
    """A file that is no database is a failure, and an empty one only lacks its tables."""
    with answering() as upstream:
        (tmp_path / "held.db").write_bytes(b"x" * 4_096)
        status, found = examine(upstream)
        assert (status, found["store"][0]) == (1, "fail")
        assert "file is not a database" in found["store"][1]
        (tmp_path / "held.db").write_bytes(b"")
        status, found = examine(upstream)
        assert (status, found["store"][0]) == (0, "ok")
        assert "the start will make its tables" in found["store"][1]


def test_limits_that_cannot_be_kept_are_told(examine: Examine, tmp_path: Path) -> None:
    """More connections than open files, and a queue that is nearly full, are reported."""
    with answering() as upstream:
        _, found = examine(upstream, more="limits: {max_connections: 10000000}")
    assert found["limits"][0] == "warn"
    assert "limits.max_connections is 10,000,000" in found["limits"][1]


def test_keys_are_looked_at(examine: Examine, tmp_path: Path) -> None:
    """Missing required keys, one that expires soon, and one of an unknown team are reported."""
    more, store = "keys: required", KeyStore(f"sqlite:///{tmp_path}/held.db")

    def add(**fields: Any) -> str:
        digest = digest_of(new_secret().encode())
        key = ClientKey(new_key_id(), digest, time.time(), **fields)
        store.add(key)
        return key.id

    try:
        with answering() as upstream:
            assert examine(upstream, more=more)[1]["keys"][0] == "warn"
            soon = add(expires_at=time.time() + 3_600)
            status, found = examine(upstream, more=more)
            assert (status, found["keys"][0]) == (0, "warn")
            assert found["keys"][1].endswith(f"will expire within a week: {soon}")
            add(team="nobody")
            status, found = examine(upstream, more=more)
            assert (status, found["keys"][0]) == (1, "fail")
            assert "there is no team 'nobody'" in found["keys"][1]
    finally:
        store.close()


def test_certificates_are_looked_at(examine: Examine, tmp_path: Path) -> None:
    """Certificates are reported as missing, for another calibrator, valid, or withdrawn."""
    (tmp_path / "gate.yaml").write_text(
        "version: 1\nname: gate\ncertificate: c.json\n"
        "rules: [{name: sure, when: {confidence: {max_error: 0.1}}, then: deliver}]\n"
        "default: hold\n"
    )
    rows = [LabelledScore(str(n), 0.9 if n % 2 else 0.2, bool(n % 2)) for n in range(600)]
    url, more = f"sqlite:///{tmp_path}/held.db", "policies: gate.yaml"

    def found_with(upstream: str, calibrator: str) -> tuple[str, str]:
        grant = certify(rows, 0.1, 0.9).grant(calibrator, Scope())
        (tmp_path / "c.json").write_text(Certificate((grant,), "2026-01-01").to_json())
        return examine(upstream, more=more)[1]["certificate gate"]

    with answering() as upstream:
        level, text = examine(upstream, more=more)[1]["certificate gate"]
        assert (level, text.endswith("has none: rules with max_error match nothing")) == (
            "warn",
            True,
        )
        assert found_with(upstream, "other@1") == ("warn", "it is for other@1, not fake:0.7")
        assert found_with(upstream, "fake:0.7") == ("ok", "1 grant for fake:0.7")
        findings = VerdictStore(url)
        grant = certify(rows, 0.1, 0.9).grant("fake:0.7", Scope())
        findings.withdraw(Withdrawal(grant.digest, "gate", "all replies", "scores_drifted", 0.0))
        findings.close()
        level, text = found_with(upstream, "fake:0.7")
        assert (level, text) == ("warn", "1 of 1 grant withdrawn: certify again")


def test_those_who_are_told_are_asked(examine: Examine) -> None:
    """A collector, Langfuse and Phoenix are asked, and each that does not listen is reported."""
    with (
        answering() as upstream,
        OtlpReceiver() as receiver,
        LangfuseServer() as langfuse,
        PhoenixServer() as phoenix,
    ):
        public, secret = langfuse.KEYS
        telemetry = {
            "otel": {"endpoint": receiver.url},
            "langfuse": {"base_url": langfuse.url, "public_key": public, "secret_key": secret},
            "phoenix": {"base_url": phoenix.url, "api_key": phoenix.KEY, "project": "apps"},
        }
        names = [*telemetry]
        status, found = examine(upstream, more=f"telemetry: {json.dumps(telemetry)}")
        assert status == 0
        assert [found[name][0] for name in names] == ["ok"] * 3
        receiver.status = 503
        telemetry["langfuse"]["secret_key"] = "wrong"
        telemetry["phoenix"]["project"] = "nobody's"
        status, found = examine(upstream, more=f"telemetry: {json.dumps(telemetry)}")
    assert status == 1
    assert [found[name][0] for name in names] == ["fail"] * 3
    assert found["otel"][1].endswith("/v1/traces: status 503")
    assert "401" in found["langfuse"][1]
    assert "404" in found["phoenix"][1]


def test_a_proxy_at_another_port_is_found_by_its_url(examine: Examine) -> None:
    """For a proxy at another port than configured, the line says how to name its address."""
    with answering() as upstream:
        url = f"http://127.0.0.1:{free_port()}"
        level, text = examine(upstream, url=url)[1]["running proxy"]
    assert (level, text) == ("skip", f"none at {url}; --url finds one at another --port")


def test_what_is_no_proxy_is_told(examine: Examine) -> None:
    """Another program at the proxy's address, or a proxy that refuses its files, is reported."""
    refusing = json.dumps(
        {"status": "ok", "generation": 3, "calibrator": "c@1", "configuration": "refused"}
    ).encode()
    with answering() as upstream:
        status, found = examine(upstream, url=upstream)
        assert (status, found["running proxy"][0]) == (1, "fail")
        assert found["running proxy"][1].endswith("does not answer as a proxy does")
        with answering(body=refusing) as proxy:
            status, found = examine(upstream, url=proxy)
    assert (status, found["running proxy"][0]) == (1, "fail")
    assert "it refuses what the files say" in found["running proxy"][1]


def test_how_many_workers_suit_the_machine(examine: Examine) -> None:
    """The number of workers follows cores, memory, and calibrators: none, one each, or one."""
    with answering() as upstream:
        level, text = examine(upstream)[1]["workers"]
        assert level == "ok"
        assert text.startswith("1 worker: about ")
        _, text = examine(upstream, more="workers: 64")[1]["workers"]
        assert text.startswith("64 workers, each with a calibrator of its own: about ")
        assert "take turns" in text or "too little memory" in text
        shared = "workers: {count: 2, scorer: shared}"
        assert "one scorer for all of them" in examine(upstream, more=shared)[1]["workers"][1]
        _, text = examine(upstream, calibrator="{checkpoint: none}")[1]["workers"]
        assert text.startswith("1 worker (calibrators not counted): about 70 MB")


def test_a_machine_suits_what_it_has_room_for() -> None:
    """The advice fits `bench workers`: two with the embedded calibrator took 206 MB, four 261."""
    two, four = (Processes(count, 86_000_000, is_forked=True) for count in (2, 4))
    assert two.memory_mb == pytest.approx(206, rel=0.02)
    assert four.memory_mb == pytest.approx(261, rel=0.02)
    apart = Processes(4, 86_000_000)
    assert apart.memory_mb == pytest.approx(507, rel=0.05)
    assert Machine(2, 10**9).suits(two)[0] == "ok"
    level, text = Machine(2, 10**9).suits(four)
    assert (
        level,
        text.endswith("here are 2 cores and 1,000 MB: workers that share a core only take turns"),
    ) == ("warn", True)
    assert Machine(8, 300 * 10**6).suits(apart) == (
        "warn",
        "4 workers, each with a calibrator of its own: about 514 MB of memory; here are 8 cores "
        "and 300 MB: too little memory for so many",
    )
    assert (
        Machine(8, None).suits(two)[1].endswith("here are 8 cores: `workers: 8` would use them all")
    )
    assert "here is 0.5 of a core" in Machine(0.5, None).suits(Processes(1, None))[1]


def test_a_containers_limits_count(tmp_path: Path) -> None:
    """A container's limits count: with a quota of half a core it has half a core."""
    meminfo = tmp_path / "meminfo"
    meminfo.write_text("MemTotal: 9000 kB\nMemAvailable: 5000 kB\n")
    assert cores(tmp_path) == len(os.sched_getaffinity(0))
    assert free_memory(tmp_path, meminfo) == 5_000 * 1_024
    (tmp_path / "cpu.max").write_text("50000 100000\n")
    (tmp_path / "memory.max").write_text("4000000\n")
    (tmp_path / "memory.current").write_text("1000000\n")
    assert (cores(tmp_path), free_memory(tmp_path, meminfo)) == (0.5, 3_000_000)
    for name in ("cpu.max", "memory.max"):
        (tmp_path / name).write_text("max\n" if name == "memory.max" else "max 100000\n")
    assert cores(tmp_path) == len(os.sched_getaffinity(0))
    assert free_memory(tmp_path, meminfo) == 5_000 * 1_024
    assert free_memory(tmp_path, tmp_path / "none") is None


def test_a_stand_in_has_a_canary_too(examine: Examine) -> None:
    with answering() as upstream:
        found = examine(upstream, calibrator="{checkpoint: 'fake:0.7', stand_in: 'fake:0.2'}")
    assert found[1]["stand-in"] == ("ok", found[1]["stand-in"][1])
    assert found[1]["stand-in"][1].startswith("fake:0.2: the canary got 0.2000 in")


def test_workers_that_are_not_there_are_told(examine: Examine) -> None:
    facts = {"status": "ok", "calibrator": "c", "generation": 1, "configuration": "current"}
    body = json.dumps(facts | {"workers": {"wanted": 4, "running": 3}}).encode()
    with answering() as upstream, answering(body=body) as proxy:
        level, text = examine(upstream, url=proxy)[1]["running proxy"]
    assert level == "warn"
    assert "1 of 4 workers are not there" in text


@pytest.mark.parametrize(("sees", "level"), [("True", "ok"), ("False", "skip")])
def test_an_idle_gpu_is_told(
    examine: Examine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, sees: str, level: str
) -> None:
    """With the extra `torch` an idle GPU is reported; another process asks torch about it."""
    devices = tmp_path / "dev"
    devices.mkdir()
    monkeypatch.setattr(extras, "has_gpu_and_torch", partial(extras.has_gpu_and_torch, devices))
    monkeypatch.setattr(extras, "is_installed", lambda module: module in extras.OF_TORCH)
    cuda = f"class cuda:\n    is_available = staticmethod(lambda: {sees})\n"
    (tmp_path / "torch.py").write_text(cuda)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    monkeypatch.setattr(doctor_module, "_scorer", lambda patient: ())
    embedded = "{checkpoint: embedded}"
    with answering() as url:
        assert "gpu" not in examine(url, calibrator=embedded)[1]
        (devices / "nvidia0").touch()
        assert "gpu" not in examine(url, calibrator=FAKE)[1], "another calibrator was chosen"
        _, found = examine(url, calibrator=embedded)
    assert found["gpu"][0] == level
    assert ("KevinDavidHayes/pinocchio-0.8b" in found["gpu"][1]) is (level == "ok")


@pytest.mark.parametrize(
    ("path", "level", "words"),
    [
        ("/v2", "ok", "it is there, without a list of models (404"),
        ("/v1/v1", "warn", "/v1 ? (404"),
        ("", "warn", "/v1 ? (404"),
        ("/v1/chat/completions", "warn", "/v1 ? (404"),
        ("/openai/v1/responses/", "warn", "/openai/v1 ? (404"),
    ],
)
def test_an_address_that_lacks_v1_or_has_it_twice(
    examine: Examine, path: str, level: str, words: str
) -> None:
    """Where an upstream has no list of models, the line says what its address may lack."""
    with answering(404) as upstream:
        found = examine(upstream + path)[1]["upstream there"]
    assert found[0] == level
    assert words in found[1]


def test_nothing_false_is_said_while_the_store_is_away(examine: Examine, tmp_path: Path) -> None:
    """While the store is away, unreadable keys are not reported as missing."""
    with answering() as upstream:
        (tmp_path / "held.db").write_bytes(b"x" * 4_096)
        status, found = examine(upstream, more="keys: required")
    assert (status, found["store"][0]) == (1, "fail")
    assert found["keys"] == ("skip", "required; the store that has them cannot be asked")


def test_a_full_disk_fails_the_store(tmp_path: Path) -> None:
    """A disk with room for the store's file, but for no held reply, is a failure."""
    path = tmp_path / "held.db"
    open_engine(f"sqlite:///{path}").dispose()
    code = (
        "import resource; resource.setrlimit(resource.RLIMIT_FSIZE, (900_000, 900_000))\n"
        "from proxy.store.condition import try_to_hold\n"
        f"try_to_hold('sqlite:///{path}')"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True)
    assert "StoreError" in done.stderr
    assert "cannot be written" in done.stderr
