"""`calibrator.facts`: replies are compared with names and texts that an operator provides."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import httpx
import pytest

from calibrator.scorer import FACTS
from proxy.config.sections import load_config
from tests.conftest import StartProxy
from tests.running.live_proxy import ProxyProcess, WordScorer, question, run_cli, until
from tests.servers.faulty_upstream import FaultyUpstream

COMPANY = Path(__file__).parents[3] / "examples" / "facts" / "company.jsonl"
ASKED = "How much is the Borea floor lamp?"
RIGHT = "The Borea floor lamp costs 189 euros."
WRONG = "The Borea floor lamp costs 129 euros."


def config_of(folder: Path, upstream: FaultyUpstream, more: str = "") -> str:
    return (
        f"upstreams: {{faulty: {{base_url: '{upstream.base_url}', api_key: sk-faulty}}}}\n"
        "models: [{match: '*', upstream: faulty}]\n"
        f"store: sqlite:///{folder}/held.db\n"
        f"calibrator: {{checkpoint: embedded, facts: company.jsonl{more}}}\n"
    )


def ask(base_url: str, answer: str) -> httpx.Response:
    """Ask for the lamp's price; upstream answers with this answer."""
    body = question(ASKED, f"say {answer}")
    return httpx.post(f"{base_url}/chat/completions", json=body, timeout=60, trust_env=False)


def test_a_scorer_gets_the_facts_that_a_reply_is_about(start_proxy: StartProxy) -> None:
    """The scorer gets only the facts that a reply is about; where none fits, it gets none."""
    scorer = WordScorer()
    proxy = start_proxy(scorer=scorer, calibrator={"facts": str(COMPANY)})
    ask(proxy.base_url, RIGHT)
    [fact] = scorer.seen[-1].facts
    assert fact.startswith("Borea floor lamp: The Borea floor lamp costs 189 euros.")
    proxy.ask("Paris")
    assert scorer.seen[-1].facts == ()


def test_a_changed_file_is_read_again_and_a_broken_one_is_refused(
    tmp_path: Path, running_upstream: FaultyUpstream
) -> None:
    """A change of the file is read: another price reverses the numbers, whose basis is
    `facts`. A mistake is reported with its line, and the earlier facts still count.
    """
    shutil.copy(COMPANY, path := tmp_path / "company.jsonl")
    with ProxyProcess(tmp_path, config_of(tmp_path, running_upstream)) as process:
        ready = process.base_url.removesuffix("/v1") + "/readyz"

        def generation() -> int:
            got = httpx.get(ready, trust_env=False)
            return int(got.json()["generation"]) if got.status_code == 200 else 0

        until(lambda: generation() == 1, 60)
        before = [ask(process.base_url, each) for each in (RIGHT, WRONG)]
        path.write_text(path.read_text().replace("costs 189 euros", "costs 129 euros"))
        until(lambda: generation() == 2, 60)
        after = [ask(process.base_url, each) for each in (RIGHT, WRONG)]
        path.write_text(path.read_text() + '{"name": "Aria"}\n')
        until(lambda: process.lines("configuration_refused"), 60)
        assert generation() == 2
        [refused] = process.lines("configuration_refused")
        assert f"{path}:11: 'text' is missing" in refused["problems"][0]
        assert [each["entries"] for each in process.lines("facts_loaded")] == [10, 10]
    for right, wrong in (before, after[::-1]):
        assert right.headers["x-pinocchio-basis"] == wrong.headers["x-pinocchio-basis"] == FACTS
        confidences = [float(each.headers["x-pinocchio-confidence"]) for each in (right, wrong)]
        assert confidences[0] > 0.5 > confidences[1]
        [choice] = wrong.json()["pinocchio"]["choices"]
        assert choice["because"][0].startswith("the facts say otherwise: 1")


def test_check_says_what_is_wrong_with_the_file(
    tmp_path: Path, running_upstream: FaultyUpstream
) -> None:
    """`check` reports a mistake with both files' lines, or counts the facts."""
    path, facts = tmp_path / "proxy.yaml", tmp_path / "company.jsonl"
    path.write_text(config_of(tmp_path, running_upstream))
    done = run_cli("check", "--config", str(path))
    assert done.returncode == 2
    assert f"{path}:4: calibrator.facts: {facts} cannot be used: No such file" in done.stderr
    facts.write_text('{"name": "Aria", "text": ""}\n')
    assert f"{facts}:1: 'text' is empty" in run_cli("check", "--config", str(path)).stderr
    shutil.copy(COMPANY, facts)
    assert f"facts {facts}: 10 entries\n" in run_cli("check", "--config", str(path)).stdout


@pytest.mark.parametrize(
    ("section", "sentence"),
    [
        ("{checkpoint: none, facts: f.jsonl}", "'checkpoint: none' compares no reply with facts"),
        (
            "{facts: f.jsonl, engine: {kind: vllm, base_url: 'http://x'}, checkpoint: y}",
            "vllm reads no facts",
        ),
    ],
)
def test_facts_are_refused_if_unread(tmp_path: Path, section: str, sentence: str) -> None:
    """`facts` is refused for a calibrator that reads none."""
    path = tmp_path / "proxy.yaml"
    path.write_text(f"calibrator: {section}\n")
    done = run_cli("check", "--config", str(path))
    assert (done.returncode, sentence in done.stderr) == (2, True)


def test_a_scoring_server_leaves_the_file_to_the_proxies(tmp_path: Path) -> None:
    """With a scoring server the proxies read the file and send the facts of each reply."""
    path = tmp_path / "proxy.yaml"
    path.write_text("calibrator: {checkpoint: 'fake:0.5', facts: company.jsonl}\n")
    done = run_cli("serve", "--scorer-only", "--config", str(path))
    assert done.returncode == 2
    assert "calibrator.facts is for the proxies that ask a scoring server" in done.stderr


def test_the_file_is_looked_for_beside_the_configuration(tmp_path: Path) -> None:
    """The file's path is relative to the configuration; an empty name means none."""
    path = tmp_path / "proxy.yaml"
    path.write_text("calibrator: {facts: company.jsonl}\n")
    assert load_config(path).calibrator.facts == tmp_path / "company.jsonl"
    path.write_text("calibrator: {facts: ''}\n")
    assert load_config(path).calibrator.facts is None


def test_rows_are_held_against_the_facts_too(tmp_path: Path) -> None:
    """`pinocchio score --facts` lowers wrong replies as in the example and leaves the others."""
    folder, scores = COMPANY.parent, {}
    for name, options in (("with", ["--facts", str(COMPANY)]), ("without", [])):
        output = tmp_path / f"{name}.jsonl"
        command = ["score", str(folder / "rows.jsonl"), "--brief", "-o", str(output), *options]
        done = run_cli(*command, PINOCCHIO_CACHE=str(tmp_path))
        assert done.returncode == 0, done.stderr
        lines = map(json.loads, output.read_text().splitlines())
        scores[name] = {each["id"]: each["confidence"] for each in lines}
        if options:
            assert "10 facts; 4 of 5 rows are about one of them" in done.stderr
    found = scores["with"]
    assert found["something else"] == scores["without"]["something else"]
    for subject in ("price", "returns"):
        assert found[f"{subject} right"] > 0.5 > found[f"{subject} wrong"]
