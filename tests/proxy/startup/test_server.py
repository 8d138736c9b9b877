"""The command line: mistakes at the start give one sentence and a status, reviews use the store."""

from __future__ import annotations

import getpass
import json
import re
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path
from subprocess import CompletedProcess
from typing import Any

import httpx
import pytest
import structlog
from typer.testing import CliRunner, Result

import pinocchio
from proxy.commands.app import cli
from proxy.config.setup import load_setup
from proxy.startup.startup import invitation
from tests.conftest import StartProxy
from tests.running.live_proxy import LiveProxy, ProxyProcess, free_port, run_cli, until
from tests.servers.faulty_upstream import FaultyUpstream

DEMO = 'upstreams: {demo: {demo: true}}\nmodels: [{match: "*", upstream: demo}]\n'
HOLD = "{version: 1, name: desk, default: {hold: {queue: seniors}}}"


@pytest.fixture
def write(tmp_path: Path) -> Any:
    """Return a function that writes a proxy.yaml, by default a valid one, and returns its path."""

    def write(text: str = "", checkpoint: str = "fake:0.5") -> str:
        path = tmp_path / "proxy.yaml"
        calibrator = (
            "" if "calibrator:" in text else f"calibrator: {{checkpoint: '{checkpoint}'}}\n"
        )
        store = "" if "store:" in text else f"store: sqlite:///{tmp_path}/held.db\n"
        path.write_text(text + calibrator + store)
        return str(path)

    return write


def assert_stopped(
    done: CompletedProcess[str], status: int, name: str, *reasons: str, lines: int = 1
) -> None:
    """Check that a run ended with this status, name and reasons, and without a traceback."""
    assert (done.returncode, done.stdout) == (status, "")
    *sentences, last = done.stderr.strip().splitlines()
    assert last == f"pinocchio: {name} (exit status {status})"
    for words in reasons:
        assert words in done.stderr
    assert len(sentences) == lines
    assert "Traceback" not in done.stderr


# Mistakes at the start


def test_a_taken_port(write: Any) -> None:
    """A taken port gives exit status 4 and a sentence that names it."""
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        done = run_cli("serve", "--config", write(), "--port", port)
    assert_stopped(done, 4, "port_taken", f"port {port} on 127.0.0.1 is taken", "--port")


def test_a_missing_checkpoint(write: Any) -> None:
    """A checkpoint folder that does not exist gives exit status 5."""
    done = run_cli("serve", "--port", "0", "--config", write(checkpoint="/no/such/folder"))
    assert_stopped(done, 5, "checkpoint_missing", "/no/such/folder")


def test_an_unreachable_hub(write: Any, tmp_path: Path) -> None:
    """A hub name that can neither be found nor downloaded soon gives exit status 6."""
    started = time.perf_counter()
    hub: Any = {"HF_ENDPOINT": f"http://127.0.0.1:{free_port()}", "HF_HOME": str(tmp_path)}
    done = run_cli("serve", "--port", "0", "--config", write(checkpoint="org/model"), **hub)
    assert time.perf_counter() - started < 20
    assert_stopped(done, 6, "hub_unreachable", "'org/model'", "embedded")


@pytest.mark.parametrize(
    ("text", "line", "message"),
    [
        ("limits:\n  max_bodi: 5MB\n", 2, "did you mean 'max_body'?"),
        ("limits: {max_body: 5MB}}\n", 1, "not valid YAML"),
    ],
    ids=["unknown key", "no YAML"],
)
def test_a_bad_configuration(write: Any, text: str, line: int, message: str) -> None:
    """A mistake in proxy.yaml gives exit status 2 with file, line and the intended key."""
    path = write(text)
    done = run_cli("serve", "--port", "0", "--config", path)
    assert_stopped(done, 2, "unusable_input", f"{path}:{line}: ", message)


def test_a_bad_policy(write: Any, tmp_path: Path) -> None:
    """A mistake in a policy beside the configuration gives exit status 2 with file and line."""
    (tmp_path / "desk.yaml").write_text("version: 1\nname: desk\ndefault: delivr\n")
    done = run_cli("serve", "--port", "0", "--config", write("policies: desk.yaml\n"))
    assert_stopped(done, 2, "unusable_input", f"{tmp_path}/desk.yaml:3: ", "deliver")


def test_lending_a_key_to_everyone(write: Any) -> None:
    """Listening beyond loopback with an upstream key but no client keys gives exit status 7."""
    upstream = "{base_url: 'https://x.example/v1', api_key: sk-canary}"
    path = write(f"upstreams: {{a: {upstream}}}\nmodels: [{{match: '*', upstream: a}}]\n")
    done = run_cli("serve", "--port", "0", "--host", "0.0.0.0", "--config", path)
    assert_stopped(done, 7, "unsafe", "0.0.0.0", "127.0.0.1")
    assert "sk-canary" not in done.stderr


@pytest.mark.parametrize("content", [None, "this is no database"])
def test_an_unusable_store(write: Any, tmp_path: Path, content: str | None) -> None:
    """A store that cannot be opened gives exit status 8 before the proxy serves."""
    path = tmp_path / "missing" / "held.db"
    if content is not None:
        path.parent.mkdir()
        path.write_text(content * 100)
    done = run_cli("serve", "--port", "0", "--config", write(f"store: sqlite:///{path}\n"))
    assert_stopped(done, 8, "store_unavailable", str(path.parent))


def test_check_makes_no_store(write: Any, tmp_path: Path) -> None:
    """`check` finds out whether the store could be made, and does not make it."""
    assert CliRunner().invoke(cli, ["check", "--config", write()]).exit_code == 0
    assert not list(tmp_path.glob("*.db"))


def test_models_without_a_route(write: Any, tmp_path: Path) -> None:
    """A policy that calls models without a route gives exit status 2, with the place of each."""
    text = """
version: 1
name: desk
ask: {models: [demo, other]}
rules:
  - {name: low, when: {confidence: {below: 0.2}}, then: {clarify: {ask: generate, model: poet}}}
default:
  escalate:
    to: [demo, strong]
    otherwise: {clarify: {ask: generate, model: demo}}
"""
    (tmp_path / "desk.yaml").write_text(text.lstrip())
    models = "upstreams: {demo: {demo: true}}\nmodels: [{match: demo, upstream: demo}]\n"
    done = run_cli("serve", "--port", "0", "--config", write(f"policies: desk.yaml\n{models}"))
    served = "a model that no route of the configuration serves"
    errors = [
        f"desk.yaml:3: ask.models[1] names 'other', {served}",
        f"desk.yaml:5: rules[0].then.clarify.model names 'poet', {served}",
        f"desk.yaml:8: default.escalate.to[1] names 'strong', {served}",
    ]
    assert_stopped(done, 2, "unusable_input", *errors, lines=3)


def test_escalations_in_a_circle(write: Any, tmp_path: Path) -> None:
    """Rules that escalate models to each other, which has no effect, give exit status 2."""
    text = """
version: 1
name: desk
rules:
  - {name: up, when: {model: demo}, then: {escalate: {to: other}}}
  - {name: down, when: {model: other}, then: {escalate: {to: demo}}}
default: deliver
"""
    (tmp_path / "desk.yaml").write_text(text.lstrip())
    path = write("policies: desk.yaml\n")
    for command in (["serve", "--port", "0"], ["check"]):
        done = run_cli(*command, "--config", path)
        circle = "desk.yaml:4: rule 'up' escalates in a circle: to other and so to demo"
        assert_stopped(done, 2, "unusable_input", circle)


# Serving


def test_the_greeting(write: Any, tmp_path: Path, upstream: FaultyUpstream) -> None:
    """The greeting has the address and a line to paste that works; Ctrl-C ends cleanly."""
    config = (
        f"upstreams: {{demo: {{demo: true}}}}\nmodels: [{{match: demo, upstream: demo}}]\n"
        f"calibrator: {{checkpoint: 'fake:0.5'}}\nstore: sqlite:///{tmp_path}/held.db\n"
    )
    with ProxyProcess(tmp_path, config, "--policy", "helpdesk") as server:
        until(lambda: "curl" in server.stdout())
        greeting = server.stdout()
        assert server.base_url in greeting
        assert "policy helpdesk (enforce)" in greeting
        assert str(tmp_path / "proxy.yaml") in greeting
        found = re.search(r"curl -si (\S+) -H 'content-type: application/json' -d '(.*)'", greeting)
        assert found is not None
        response = httpx.post(
            found[1], content=found[2], headers={"content-type": "application/json"}
        )
        assert response.status_code == 200
        assert response.headers["x-pinocchio-confidence"] == "0.5000"
        server.send_signal(signal.SIGINT)
        server.wait(within_s=10)
        assert "Traceback" not in server.stderr()


def test_the_line_to_paste_with_keys(tmp_path: Path) -> None:
    """Where keys are required, the line has a place for one and names the command for it."""
    config = (
        f"keys: required\n{DEMO}calibrator: {{checkpoint: 'fake:0.5'}}\n"
        f"store: sqlite:///{tmp_path}/held.db\n"
    )
    with ProxyProcess(tmp_path, config) as server:
        until(lambda: "curl" in server.stdout())
        greeting = server.stdout()
        made = run_cli("keys", "create", "--config", str(tmp_path / "proxy.yaml"))
        found = re.search(r"curl -si (\S+) .* -H 'authorization: (.*?)' -d '(.*)'", greeting)
        assert found is not None
        authorization = found[2].replace("YOUR_KEY", made.stdout.strip())

        def status() -> int:
            headers = {"content-type": "application/json", "authorization": authorization}
            return httpx.post(found[1], content=found[3], headers=headers).status_code

        until(lambda: status() == 200)  # a key is known within a second
    assert "(YOUR_KEY is what `pinocchio keys create` prints)" in greeting


@pytest.mark.parametrize(
    ("models", "invited"),
    [
        ("[{match: demo, upstream: demo}]", "demo"),
        ("[{match: '*', upstream: demo}]", "demo"),
        ("[{match: first, upstream: demo}, {match: '*', upstream: other}]", "first"),
        ("[{match: demo-strong, upstream: demo}]", None),  # it answers rightly
        ("[{match: '*', upstream: other}, {match: demo, upstream: demo}]", None),
        ("[]", None),
    ],
)
def test_the_line_to_paste_names_a_model_of_the_demo(
    write: Any, models: str, invited: str | None
) -> None:
    """The line names a model that the routes send to the demo; without one there is no line."""
    upstreams = "{demo: {demo: true}, other: {base_url: 'http://127.0.0.1:1/v1'}}"
    setup = load_setup(Path(write(f"upstreams: {upstreams}\nmodels: {models}\n")))
    lines = invitation(setup, "http://127.0.0.1:8000/v1")
    named = re.findall(r'"model": "(.*?)"', "\n".join(lines))
    assert named == ([] if invited is None else [invited])


def test_what_serve_does_not_load(write: Any, tmp_path: Path) -> None:
    """`serve` does not load what only other commands, consoles and sockets need."""
    config = write("admin: {enabled: false}\n", checkpoint="none")
    command = [sys.executable, "-X", "importtime", "-m", "pinocchio", "serve", "--port", "0"]
    with (
        (tmp_path / "imports").open("w") as imports,
        subprocess.Popen(
            [*command, "--config", config], stdout=subprocess.PIPE, stderr=imports, text=True
        ) as server,
    ):
        assert server.stdout is not None
        assert "listens" in server.stdout.readline()
        server.terminate()
    lines = (tmp_path / "imports").read_text().splitlines()
    loaded = {line.rpartition("|")[2].strip() for line in lines if line.startswith("import time:")}
    assert "sqlalchemy" in loaded
    unwanted = {"rich.console", "attr", "websockets", "fastapi", "numpy", "torch", "litellm"}
    assert loaded & (unwanted | {"proxy.commands.app", "pinocchio.commands"}) == set()


def test_the_version() -> None:
    """`pinocchio --version` prints the package's version."""
    command = [sys.executable, "-m", "pinocchio", "--version"]
    output = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    assert output == f"pinocchio-proxy {pinocchio.__version__}\n"


def test_check(write: Any, tmp_path: Path) -> None:
    """`check` of a valid configuration gives exit status 0 and says how streams are sent."""
    (tmp_path / "desk.yaml").write_text(HOLD)
    path = write("policies: desk.yaml\n")
    done = CliRunner().invoke(cli, ["check", "--config", path])
    assert (done.exit_code, done.stderr) == (0, "")
    assert f"{path}: ok" in done.stdout
    assert "policy desk@" in done.stdout
    assert "all streams are buffered by default" in done.stdout


def test_check_refuses_what_a_running_proxy_would(tmp_path: Path) -> None:
    """`check` refuses to remove a team that has active keys, as a running proxy would."""
    config = tmp_path / "proxy.yaml"
    text = (
        f"keys: required\n{DEMO}calibrator: {{checkpoint: 'fake:0.5'}}\n"
        f"store: sqlite:///{tmp_path}/held.db\n"
    )
    config.write_text(f"{text}teams: {{support: {{policy: observe}}}}\n")
    made = run_cli("keys", "create", "--team", "support", "--config", str(config))
    assert made.returncode == 0, made.stderr
    assert CliRunner().invoke(cli, ["check", "--config", str(config)]).exit_code == 0
    config.write_text(text)
    done = CliRunner().invoke(cli, ["check", "--config", str(config)])
    assert done.exit_code == 2
    assert "support" in done.stderr


def test_missing_chain_is_reported_at_start(tmp_path: Path, postgres_url: str) -> None:
    """On PostgreSQL without a key for the chain, greeting and log say so and what to do."""
    config = f"{DEMO}calibrator: {{checkpoint: 'fake:0.5'}}\nstore: {postgres_url}\n"
    with ProxyProcess(tmp_path, config) as server:
        until(lambda: "PINOCCHIO_CHAIN_KEY" in server.stdout())
        assert "no audit chain: set PINOCCHIO_CHAIN_KEY" in server.stdout()
        assert "audit_chain_off" in server.stderr()


def test_check_names_all_mistakes(write: Any) -> None:
    """`check` of an invalid configuration gives exit status 2 with a line for each mistake."""
    path = write("limits:\n  max_bodi: 5\n  max_hold: 5\n")
    done = CliRunner().invoke(cli, ["check", "--config", path])
    assert (done.exit_code, done.stdout) == (2, "")
    assert f"{path}:2: " in done.stderr
    assert f"{path}:3: " in done.stderr


@pytest.mark.parametrize(
    ("text", "line", "message"),
    [
        ("\npolicies: observ\n", 2, "policies: observ: there is no pack of this name; did you"),
        ("policies: nofile.yaml\n", 1, "nofile.yaml: there is no such file"),
        (
            f"keys: required\n{DEMO}teams:\n  a:\n    policy: observ\n",
            6,
            "teams.a.policy: observ: there is no pack of this name",
        ),
        ("calibrator:\n  checkpoint: ./nosuch\n", 2, "calibrator.checkpoint: "),
        (
            "calibrator:\n  checkpoint: fake:0.5\n  recalibration: nofile\n",
            3,
            "calibrator.recalibration: there is no recalibration ",
        ),
        (
            "admin:\n  host: 0.0.0.0\n",
            2,
            "admin.host: the review desk on 0.0.0.0 is reached from other machines",
        ),
        ("\nstore: sqlite:///nodir/x.db\n", 2, "store: the store's folder "),
    ],
)
def test_check_names_line_of_missing_things(
    write: Any, monkeypatch: pytest.MonkeyPatch, text: str, line: int, message: str
) -> None:
    """A key that names something missing, or an unusable desk's address, has its file and line."""
    monkeypatch.delenv("PINOCCHIO_ADMIN_TOKEN", raising=False)
    path = write(text)
    done = CliRunner().invoke(cli, ["check", "--config", path])
    errors = done.stderr.splitlines()
    assert (done.exit_code, done.stdout, len(errors)) == (2, "", 2)
    assert errors[0].startswith(f"{path}:{line}: ")
    assert message in errors[0]


def test_command_line_errors_have_no_line(write: Any) -> None:
    """An unknown policy on the command line is reported without a line of the configuration."""
    done = CliRunner().invoke(cli, ["check", "--config", write(), "--policy", "observ"])
    assert done.exit_code == 2
    assert done.stderr.startswith("observ: there is no pack of this name")


def test_check_warns_of_models_that_nothing_routes(write: Any) -> None:
    """`check` warns of an empty list of routes, which is valid and answers no request."""
    path = write("models: []\n")
    done = CliRunner().invoke(cli, ["check", "--config", path])
    assert done.exit_code == 0
    assert f"  warning: {path}:1: models: none, so no request can be answered" in done.stdout


# Reviews


@pytest.fixture(scope="module")
def holding(start_proxy: StartProxy) -> LiveProxy:
    return start_proxy(policy=HOLD)


def reviews(proxy: LiveProxy, *arguments: str) -> Result:
    """Run `pinocchio reviews ARGUMENTS` on a running proxy's store, in this process for speed."""
    path = proxy.store_path.parent / "proxy.yaml"
    path.write_text(f"store: sqlite:///{proxy.store_path}\ncalibrator: {{checkpoint: none}}\n")
    # The proxy logs at any time, also while the command's output is read from `sys.stdout`.
    structlog.configure(logger_factory=structlog.PrintLoggerFactory(sys.__stderr__))
    try:
        done = CliRunner().invoke(cli, ["reviews", *arguments, "--config", str(path)])
    finally:
        structlog.reset_defaults()
    assert done.exception is None or isinstance(done.exception, SystemExit)
    return done


def test_reviews_of_a_running_proxy(holding: LiveProxy) -> None:
    """Held replies of a running proxy are listed, shown, released and rejected from a terminal."""
    ids = [holding.ask(f"why? p=0.{number}").json()["id"] for number in (3, 1)]
    listed = reviews(holding, "list")
    lines = listed.stdout.splitlines()
    assert [line.split()[:3] for line in lines] == [
        [ids[1], "0.1000", "seniors"],
        [ids[0], "0.3000", "seniors"],
    ]
    facts = [json.loads(line) for line in reviews(holding, "list", "--json").stdout.splitlines()]
    row = (facts[0]["id"], facts[0]["state"], facts[0]["question"])
    assert row == (ids[1], "open", "why? p=0.1")

    assert "reject in 7 d" in lines[0]
    assert (facts[0]["on_expiry"], facts[0]["calls"]) == ("reject", [])

    review = json.loads(reviews(holding, "show", ids[0], "--json").stdout)
    assert review["reply"]["choices"][0]["message"]["content"] == "why? p=0.3"
    assert review["confidence"] == 0.3

    assert reviews(holding, "approve", ids[0], "--as", "alice", "--wrong").exit_code == 0
    facts = json.loads(reviews(holding, "show", ids[0], "--json").stdout)
    assert (facts["state"], facts["decided_by"]) == ("released", "alice")
    released = holding.openai.chat.completions.retrieve(ids[0])
    assert released.choices[0].message.content == "why? p=0.3"
    assert reviews(holding, "reject", ids[1]).exit_code == 0
    gone = holding.http.get(f"/v1/chat/completions/{ids[1]}")
    assert gone.json()["error"]["code"] == "held_reply_rejected"
    assert reviews(holding, "list").stdout == ""

    again = reviews(holding, "approve", ids[1])
    assert again.exit_code == 1
    assert f"{ids[1]} was rejected by {getpass.getuser()} already" in again.stderr


def test_reviews_that_are_not_there(holding: LiveProxy) -> None:
    """An unknown id gives exit status 1 and a sentence."""
    for command in ("show", "approve", "reject"):
        done = reviews(holding, command, "chatcmpl-held-nothing")
        assert (done.exit_code, done.stdout) == (1, "")
        assert "there is no review 'chatcmpl-held-nothing'" in done.stderr


def test_reviews_without_a_store(write: Any) -> None:
    """In a process of its own, a store that cannot be opened gives exit status 8."""
    done = run_cli("reviews", "list", "--config", write("store: sqlite:////no/such/held.db\n"))
    assert_stopped(done, 8, "store_unavailable", "/no/such/held.db")
