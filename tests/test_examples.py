"""Every example, run as its reader would, against a proxy that `pinocchio serve` started."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from calibrator import version_of
from calibrator.checkpoints.checkpoint import CHECKPOINTS, EMBEDDED
from tests.node.runner import run_node
from tests.running.live_proxy import ROOT, ProxyProcess, environment, run_cli, until
from tests.running.warm_cli import Program, run_warm, shell_command

EXAMPLES = ROOT / "examples"
IMPORTED = ("httpx", "openai", "openai.resources.chat")  # imported by most examples
ANSWER = "Yes, 91 is a prime number. It has no divisors other than 1 and itself."
CONFIG = """
calibrator: {{checkpoint: "fake:0.73"}}
store: sqlite:///{folder}/held.db
"""


def start(folder: Path, *options: str) -> ProxyProcess:
    return ProxyProcess(folder, CONFIG.format(folder=folder), *options)


def wait_until_ready(proxy: ProxyProcess) -> None:
    url = proxy.base_url.removesuffix("/v1") + "/readyz"
    until(lambda: httpx.get(url, trust_env=False).status_code == 200, within_s=30)


@pytest.fixture(scope="module")
def observing(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Yield the address of a proxy with the default policy; every reply gets 0.73."""
    with start(tmp_path_factory.mktemp("observing")) as proxy:
        wait_until_ready(proxy)
        yield proxy.base_url


def run(script: str, *, url: str = "", errors: str = "", **env: str) -> str:
    """Return what the example prints; fail if it fails or its stderr does not match `errors`."""
    env = environment() | {"PINOCCHIO_URL": url} | env
    path = EXAMPLES / script
    if path.suffix == ".py":
        done = run_warm((), cwd=ROOT, env=env, timeout_s=180, program=Program(path, IMPORTED))
    else:
        done = subprocess.run([path], capture_output=True, text=True, timeout=180, env=env)
    assert done.returncode == 0, done.stderr
    assert re.fullmatch(errors, done.stderr), done.stderr
    return done.stdout


def fields(output: str) -> dict[str, str]:
    """Return the values of a quickstart's lines `name:   value`."""
    return dict(re.split(r":\s+", line, maxsplit=1) for line in output.splitlines())


def test_the_quickstart_prints_answer_and_confidence_of_a_reply_and_of_a_stream(
    observing: str,
) -> None:
    """The quickstart prints the answer and confidence of a plain reply and of a stream."""
    assert fields(run("quickstart.py", url=observing)) == {
        "answer": ANSWER,
        "header": "0.7300",
        "body": "0.73 scored",
        "stream": ANSWER,
        "finish": "0.73 scored",
    }


def test_the_node_quickstart_prints_the_same_and_a_typed_error(observing: str) -> None:
    """The Node quickstart prints the same, and a typed error."""
    done = run_node(EXAMPLES / "node", "quickstart.mjs", PINOCCHIO_URL=observing)
    assert (done.returncode, done.stderr) == (0, "")
    assert fields(done.stdout) == {
        "answer": ANSWER,
        "header": "0.7300",
        "body": "0.73 scored",
        "stream": ANSWER,
        "finish": "0.73 scored",
        "error": "400 empty_array messages",
    }


def test_two_lines_print_a_probability() -> None:
    if not (CHECKPOINTS / EMBEDDED / "calibrator.json").is_file():
        pytest.skip("the embedded checkpoint is not in calibrator/checkpoints yet")
    output = run("two_lines.py")
    printed = re.fullmatch(r"P\(correct\) = (0\.\d{4}) by embedded@\S+\n", output)
    assert printed is not None, output
    assert 0 < float(printed[1]) < 1


def sections(output: str) -> dict[str, str]:
    """Return the parts of `curl.sh`'s output by the first words of their titles."""
    parts = re.split(r"^== (.*)\n", output, flags=re.MULTILINE)[1:]
    return {
        re.split(r"[:,]", title)[0]: text for title, text in zip(*[iter(parts)] * 2, strict=True)
    }


def test_curl_prints_the_confidence_of_a_reply_and_of_a_stream(observing: str) -> None:
    """`curl.sh` prints the models, and the confidence of a reply and of a stream."""
    parts = sections(run("curl.sh", url=observing))
    assert [model["id"] for model in json.loads(parts["models"])["data"]] == ["demo"]
    headers, body = parts["an answer"].split("\n\n", 1)
    assert "x-pinocchio-confidence: 0.7300" in headers.splitlines()
    assert json.loads(body)["pinocchio"]["confidence"] == 0.73
    finish, done = parts["the end of a stream"].split("\n\n")[:2]
    assert json.loads(finish.removeprefix("data: "))["pinocchio"]["confidence"] == 0.73
    assert done == "data: [DONE]"
    assert parts["not held"] == "", "the default policy only observes"


def test_curl_fetches_a_held_reply_which_is_a_placeholder_until_it_is_released(
    tmp_path: Path,
) -> None:
    """A held reply is a placeholder until a reviewer releases it; then it can be fetched."""
    with start(tmp_path, "--policy", "helpdesk") as proxy:
        wait_until_ready(proxy)
        output = run("curl.sh", url=proxy.base_url)
        parts = sections(output)
        assert parts["a refund"].startswith("HTTP/1.1 422 ")
        assert json.loads(parts["held"])["choices"][0]["finish_reason"] == "content_filter"

        command = re.search(r"\.venv/bin/pinocchio (reviews approve (\S+))", output)
        assert command is not None
        released = run_cli(*command[1].split(), "--config", str(tmp_path / "proxy.yaml"))
        assert released.returncode == 0, released.stderr
        fetched = httpx.get(f"{proxy.base_url}/chat/completions/{command[2]}", trust_env=False)
        [call] = fetched.json()["choices"][0]["message"]["tool_calls"]
        assert call["function"]["name"] == "refund_order"


def test_a_proxy_and_a_program_share_a_calibrator(tmp_path: Path) -> None:
    """The proxy and the program get the same confidence and version from one scoring server."""
    (tmp_path / "scorer").mkdir()
    (tmp_path / "proxy").mkdir()
    config = (EXAMPLES / "scoring_server" / "proxy.yaml").read_text()
    section = "calibrator: {checkpoint: embedded}"
    with ProxyProcess(tmp_path / "scorer", section, "--scorer-only") as server:
        config = config.replace("http://127.0.0.1:9000", server.base_url)
        config += f"store: sqlite:///{tmp_path}/held.db\n"
        with ProxyProcess(tmp_path / "proxy", config) as proxy:
            assert f"engine scorer at {server.base_url} (loading)" in proxy.stdout()
            environ = {"url": proxy.base_url, "PINOCCHIO_SCORER_URL": server.base_url}
            output = fields(run("scoring_server/compare.py", **environ))
    assert output["through the proxy"] == output["from the server"]
    assert output["calibrator"] == version_of("embedded")


def test_a_program_works_through_the_queue(tmp_path: Path) -> None:
    """The reviewing program corrects a refund of ten times the amount and releases it."""
    token = "a-token-of-the-examples"
    config = CONFIG.format(folder=tmp_path) + f"admin: {{port: 0, token: {token}}}\n"
    with ProxyProcess(tmp_path, config, "--policy", "helpdesk") as proxy:
        wait_until_ready(proxy)
        output = run("curl.sh", url=proxy.base_url)
        id = re.search(r"reviews approve (\S+)", output)
        desk = re.search(r"review desk (\S+)", proxy.stdout())
        assert id is not None
        assert desk is not None
        environ = {"PINOCCHIO_DESK_URL": desk[1], "PINOCCHIO_ADMIN_TOKEN": token}
        assert run("review/approve.py", **environ) == "oncall: edit, released by admin\n"
        fetched = httpx.get(f"{proxy.base_url}/chat/completions/{id[1]}", trust_env=False)
        [call] = fetched.json()["choices"][0]["message"]["tool_calls"]
        assert json.loads(call["function"]["arguments"])["amount"] == 6.9


def test_two_people_approve_a_refund(tmp_path: Path) -> None:
    """Two different people must approve a refund; another spelling of alice does not count as a
    second.
    """
    config = CONFIG.format(folder=tmp_path) + "admin: {enabled: false}\n"
    policy = str(EXAMPLES / "review" / "two_people.yaml")
    with ProxyProcess(tmp_path, config, "--policy", policy) as proxy:
        wait_until_ready(proxy)
        id = re.search(r"reviews approve (\S+)", run("curl.sh", url=proxy.base_url))
        assert id is not None
        for name, state in (
            ("alice", "open: 1 of 2 approved (alice)"),
            ("Alice", "open: 1 of 2 approved (alice)"),
            ("bob", "released: 2 of 2 approved (alice, bob)"),
        ):
            config = str(tmp_path / "proxy.yaml")
            done = run_cli("reviews", "approve", id[1], "--as", name, "--config", config)
            assert done.stdout == f"{id[1]} is {state}\n"


def test_two_people_approve_from_a_chat(tmp_path: Path) -> None:
    """The steps of docs/chat.md work: each person gets a message with a link and needs no key."""
    page = (ROOT / "docs" / "chat.md").read_text(encoding="utf-8")
    for command in ("examples/review/chat_endpoint.py", "examples/review/chat.yaml"):
        assert f" {command}\n" in page
    shutil.copy(EXAMPLES / "review" / "two_people.yaml", tmp_path)
    script, printed = EXAMPLES / "review" / "chat_endpoint.py", tmp_path / "printed"
    with printed.open("w") as output:
        endpoint = subprocess.Popen([sys.executable, script, "0"], stdout=output)
    try:
        until(lambda: "listens on" in printed.read_text(), within_s=30)
        text = (EXAMPLES / "review" / "chat.yaml").read_text()
        text = text.replace("http://127.0.0.1:8090", printed.read_text().split()[-1])
        text = text.replace("admin:\n", "admin:\n  port: 0\n") + CONFIG.format(folder=tmp_path)
        with ProxyProcess(tmp_path, text) as proxy:
            wait_until_ready(proxy)
            id = re.search(r"reviews approve (\S+)", run("curl.sh", url=proxy.base_url))
            assert id is not None
            _approve_in_turn(printed, id[1])
            fetched = httpx.get(f"{proxy.base_url}/chat/completions/{id[1]}", trust_env=False)
            [call] = fetched.json()["choices"][0]["message"]["tool_calls"]
            assert call["function"]["name"] == "refund_order"
            until(lambda: "to channel: A held reply was released" in printed.read_text())
    finally:
        endpoint.terminate()
        endpoint.wait(20)


def _approve_in_turn(printed: Path, id: str) -> None:
    """Open the button of each person's message, look at the reply and approve it."""
    for name, title in (("alice", "Approved by you"), ("bob", "Approved")):
        link = re.compile(rf"to {name}: [^\[]*{id}.*?\[Approve\] (\S+)", re.DOTALL)
        until(lambda found=link: found.search(printed.read_text()) is not None, within_s=30)
        found = link.search(printed.read_text())
        assert found is not None
        with httpx.Client(trust_env=False) as browser:
            assert "refund_order" not in browser.get(found[1]).text
            page = browser.post(found[1], data={"step": "show"}).text
            assert "refund_order" in page
            opened = f"{time.time() - 5:.3f}"
            form = {"opened": opened, "verdict": "approve", "confirmed": "yes"}
            assert f"<h1>{title}</h1>" in browser.post(found[1], data=form).text


def test_verdicts_on_audited_replies_are_learnt_from(tmp_path: Path) -> None:
    """Each delivered reply gets one verdict, and the learnt accuracy agrees with the answer key."""
    token, path = "a-token-of-the-examples", tmp_path / "proxy.yaml"
    text = (EXAMPLES / "learning" / "proxy.yaml").read_text()
    text = text.replace("runs/", f"{tmp_path}/") + f"store: sqlite:///{tmp_path}/held.db\n"
    config = text + f"admin: {{port: 0, token: {token}}}\n"
    with ProxyProcess(tmp_path, config) as proxy:
        wait_until_ready(proxy)
        desk = re.search(r"review desk (\S+)", proxy.stdout())
        assert desk is not None
        environ = {"PINOCCHIO_DESK_URL": desk[1], "PINOCCHIO_ADMIN_TOKEN": token}
        environ |= {"PINOCCHIO_CONFIG": str(path), "url": proxy.base_url}
        output = run("learning/learn.py", **environ)
    right = int(output.split()[0])
    judged = re.search(r"delivered: (\d+) verdicts on \1 replies, (\S+)% right", output)
    assert judged is not None, output
    assert float(judged[2]) == pytest.approx(100 * right / int(judged[1]), abs=0.1)
    assert f"fitted on {judged[1]} verdicts" in output
    assert f"{judged[1]} audited verdicts" in output


def test_a_judge_counts_once_verdicts_have_taught_what_it_is_worth(tmp_path: Path) -> None:
    """A judge moves the confidence by the prior at first and by the fitted model after verdicts."""
    token, path = "a-token-of-the-examples", tmp_path / "proxy.yaml"
    shutil.copy(EXAMPLES / "judge" / "policy.yaml", tmp_path)
    text = (EXAMPLES / "judge" / "proxy.yaml").read_text()
    text = text.replace("runs/", f"{tmp_path}/") + f"store: sqlite:///{tmp_path}/held.db\n"
    with ProxyProcess(tmp_path, text + f"admin: {{port: 0, token: {token}}}\n") as proxy:
        wait_until_ready(proxy)
        desk = re.search(r"review desk (\S+)", proxy.stdout())
        assert desk is not None
        environ = {"PINOCCHIO_DESK_URL": desk[1], "PINOCCHIO_ADMIN_TOKEN": token}
        environ |= {"PINOCCHIO_CONFIG": str(path), "url": proxy.base_url}
        output = run("judge/learn.py", **environ)
    before, _, after = output.partition("signals@")
    assert "promoted: it counts from the next request on" in after
    assert re.search(r"gives embedded@\w+\+platt@\w+\+judge@\w{8}\n", after), output
    numbers = re.compile(r"confidence: (\S+) (\S+)\n  judge: (\S+) by token, (.*), before (\S+)\n")
    first = numbers.findall(before)
    assert [each[3] for each in first] == ["counts"] * 2
    assert all("+judge-prior@" in each[1] for each in first)
    moved = numbers.findall(after)
    assert [each[3] for each in moved] == ["counts"] * 2
    assert [each[4] for each in moved] == [each[4] for each in first]
    assert all("+judge@" in each[1] for each in moved)
    for each in (*first, *moved):
        is_lifted = float(each[0]) > float(each[4])
        assert is_lifted == (float(each[2]) > 0.5)


def test_every_scored_surface_gives_the_same_confidence(observing: str) -> None:
    """All four scored paths return the same confidence for the same answer."""
    parts = sections(run("every_surface.sh", url=observing))
    assert list(parts) == ["chat/completions", "completions", "responses", "messages"]
    for text in parts.values():
        *headers, body = text.splitlines()
        assert "x-pinocchio-confidence: 0.7300" in headers
        assert ANSWER in body
        assert json.loads(body)["pinocchio"]["confidence"] == 0.73


def with_pinocchio(*command: str, url: str = "") -> str:
    """Run an example like `run`, with this checkout's command line; stderr may have text."""
    variables = {"PINOCCHIO_URL": url, "PINOCCHIO": shell_command()}
    done = subprocess.run(
        command, capture_output=True, text=True, timeout=120, env=environment() | variables
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_a_policy_is_proved_on_labelled_replies() -> None:
    """`prove.sh` recalibrates, certifies, tests and replays, with the figures of its README."""
    parts = sections(with_pinocchio(str(EXAMPLES / "policy" / "prove.sh")))
    assert list(parts) == ["recalibrate", "certify", "test", "replay"]
    assert re.search(r"ECE 0\.126 -> 0\.021", parts["recalibrate"])
    assert "In the best case (no further errors) 155 more labels would do." in parts["certify"]
    assert "fixtures that differ: 0 of 5" in parts["test"]
    delivered = re.search(r"gate@\S+: 12\.3% of 2,000 replies delivered\n(.*)", parts["replay"])
    assert delivered is not None
    assert "15 of 246 labelled are wrong (6.1%" in delivered[1]
    assert not list((EXAMPLES / "policy").glob("*.json*")), "nothing is kept"


def test_the_policy_on_what_was_checked_decides_as_its_fixtures_say() -> None:
    """The example policy on checked evidence decides as its fixtures say."""
    folder = EXAMPLES / "grounded"
    done = run_cli("test", str(folder / "policy.yaml"), str(folder / "fixtures.yaml"))
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.endswith("fixtures that differ: 0 of 8\n")


def test_the_record_explains_a_decision_and_replays_another_policy(
    tmp_path: Path,
) -> None:
    """`look_back.sh` explains a decision, records a verdict and replays another policy."""
    with start(tmp_path, "--policy", "helpdesk") as proxy:
        wait_until_ready(proxy)
        script, config = EXAMPLES / "policy" / "look_back.sh", tmp_path / "proxy.yaml"
        config.write_text(config.read_text() + "policies: helpdesk\n")
        output = with_pinocchio(str(script), "--config", str(config), url=proxy.base_url)
    parts = sections(output)
    assert "yes  default: deliver" in parts["explain"]
    assert parts["explain"].endswith("the same decision\n")
    assert " is wrong, says " in parts["verdict"]
    assert "1 of 1 reply is treated differently" in parts["replay"]
    assert "1 of 1 labelled are wrong" in parts["replay"]


def test_the_cascade_asks_the_strong_model_where_the_first_is_unsure(tmp_path: Path) -> None:
    """The cascade asks the stronger model only where the first one is unsure."""
    if not (CHECKPOINTS / EMBEDDED / "calibrator.json").is_file():
        pytest.skip("the embedded checkpoint is not in calibrator/checkpoints yet")
    for name in ("proxy.yaml", "policy.yaml"):
        shutil.copy(EXAMPLES / "cascade" / name, tmp_path)
    config = (tmp_path / "proxy.yaml").read_text() + f"store: sqlite:///{tmp_path}/held.db\n"
    with ProxyProcess(tmp_path, config) as proxy:
        wait_until_ready(proxy)
        output = run("cascade/ask.py", url=proxy.base_url)
        until(lambda: len(proxy.lines()) == 2)
        sure, unsure = proxy.lines()
    first, second = output.split("Is 91 a prime number?")
    assert "41,760 minutes" in first
    assert "call:" not in first
    assert "answer:  No. 91 = 7" in second
    assert "action:  escalate" in second
    calls = re.findall(r"call: +(\S+) 0\.\d+ \d+ tokens ?(\w*)", second)
    assert calls == [("demo", ""), ("demo-strong", "kept")]
    assert "calls" not in sure
    assert [call["model"] for call in unsure["calls"]] == ["demo", "demo-strong"]


def test_a_second_opinion_raises_one_number_and_lowers_another(tmp_path: Path) -> None:
    """A second opinion raises the right answer's confidence above the wrong one's; neither answer
    changes.
    """
    for name in ("proxy.yaml", "policy.yaml"):
        shutil.copy(EXAMPLES / "second_opinion" / name, tmp_path)
    config = (tmp_path / "proxy.yaml").read_text() + f"store: sqlite:///{tmp_path}/held.db\n"
    with ProxyProcess(tmp_path, config) as proxy:
        wait_until_ready(proxy)
        output = run("second_opinion/ask.py", url=proxy.base_url)
    numbers = re.findall(r"confidence: ([0-9.]+) (\w+) ?(\w*)\n +before: +([0-9.]+)", output)
    (sure, _, no_label, before), (unsure, action, label, first) = numbers
    assert float(sure) > 0.9 > float(before)
    assert float(unsure) < 0.7 < float(first)
    assert (no_label, action, label) == ("", "annotate", "unverified")
    assert re.findall(r"opinion: +(\S+) (\w+)", output) == [
        ("demo-strong", "agree"),
        ("demo-strong", "differ"),
    ]
    assert "41,760 minutes" in output
    assert "230 bones" in output


def test_two_teams_share_a_proxy_each_under_its_policy(tmp_path: Path) -> None:
    """Two teams share a proxy, each with its key and under its policy."""
    (tmp_path / "support.yaml").write_text((EXAMPLES / "teams/support.yaml").read_text())
    shipped = f"calibrator: {{timeout_s: 30}}\nstore: sqlite:///{tmp_path}/held.db\n"
    text = (EXAMPLES / "teams/proxy.yaml").read_text() + shipped
    with ProxyProcess(tmp_path, text) as proxy:
        wait_until_ready(proxy)
        config = str(tmp_path / "proxy.yaml")
        made = r"(pinocchio: this is key_\w+; it cannot be shown again\n){2}"
        url = proxy.base_url
        output = run("teams/ask.py", url=url, errors=made, PINOCCHIO_CONFIG=config)
    held = r"hold by support/failed-a-check@\w{8}"
    assert re.fullmatch(
        f"support: +{held}\n"
        r"research: +deliver by observe/[\w-]+@\w{8}\n"
        f"research, stricter: +{held}\n"
        "somebody else: +401 invalid_api_key\n",
        output,
    ), output


def test_the_readme_names_every_example() -> None:
    """The README's table names each example."""
    named = set(re.findall(r"^\| `([^`]+)`", (EXAMPLES / "README.md").read_text(), re.MULTILINE))
    here = {path.name + "/" * path.is_dir() for path in EXAMPLES.iterdir()}
    assert named == here - {"README.md", "__pycache__/"}


@pytest.mark.parametrize("folder", ["examples/node", "tests/node", "tests/helm"])
def test_node_packages_are_pinned_exactly_and_name_no_registry(folder: str) -> None:
    """Node packages are pinned exactly, in the lock file too, which names no registry."""
    path = EXAMPLES.parent / folder
    wanted = json.loads((path / "package.json").read_text())["dependencies"]
    assert all(re.fullmatch(r"\d+\.\d+\.\d+", version) for version in wanted.values())
    packages = json.loads((path / "package-lock.json").read_text())["packages"]
    assert {f"node_modules/{name}" for name in wanted} <= set(packages)
    for name, version in wanted.items():
        assert packages[f"node_modules/{name}"]["version"] == version
    assert not any("resolved" in package for package in packages.values())
