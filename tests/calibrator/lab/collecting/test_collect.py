"""`pinocchio collect` against the demo upstream and a faulty one, killed and resumed."""

from __future__ import annotations

import json
import signal
import subprocess
import threading
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from tests.running.live_proxy import ROOT, environment, run_cli
from tests.running.warm_cli import WarmProcess
from tests.servers.faulty_upstream import FaultyUpstream

Json = dict[str, Any]
MADE = ("rows.jsonl", "train.jsonl", "test.jsonl", "report.json")


@pytest.fixture
def folder(tmp_path: Path, upstream: FaultyUpstream) -> Path:
    """Write ten questions, whose last word is the answer of a model that repeats them."""
    config = f"""
    upstreams: {{faulty: {{base_url: "{upstream.base_url}", api_key: k}}}}
    models: [{{match: "*", upstream: faulty}}]
    """
    (tmp_path / "proxy.yaml").write_text(config)
    rows = [{"id": n, "question": f"Say the number {n}", "gold": str(n % 5)} for n in range(10)]
    (tmp_path / "sums.jsonl").write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    return tmp_path


def command(folder: Path, *options: str, output: str = "run") -> list[str]:
    named = ["--config", str(folder / "proxy.yaml"), "-o", str(folder / output)]
    return ["collect", str(folder / "sums.jsonl"), "--as-it-is", *named, *options]


def collect(folder: Path, *options: str, output: str = "run") -> subprocess.CompletedProcess[str]:
    return run_cli(*command(folder, *options, output=output))


def rows_in(folder: Path, name: str = "run/rows.jsonl") -> list[Json]:
    return [json.loads(line) for line in (folder / name).read_text().splitlines()]


def bodies(upstream: FaultyUpstream) -> Counter[bytes]:
    return Counter(request.body for request in upstream.requests)


def test_a_faulty_upstream_is_retried(folder: Path, upstream: FaultyUpstream) -> None:
    """Passing faults are retried, permanent ones reported; an empty reply is an incorrect row."""
    flaky = [f"flaky-{each}" for each in ("status-503", "cut", "hang-up", "html", "broken-json")]
    models = ["ok", "empty", "gzip", "status-400", *flaky]
    named = [part for model in models for part in ("--model", model)]
    done = collect(folder, *named, "--price", "ok=1000000,0", "--questions", "3")
    assert done.returncode == 1
    assert "3 calls without an answer: status-400: status 400" in done.stderr
    assert "15 calls were tried again" in done.stderr
    rows = rows_in(folder)
    by_model = {model: [r for r in rows if r["model"] == model] for model in models}
    assert not by_model["status-400"]
    for model in ("gzip", *flaky):
        same = ("question_id", "correct", "response", "why")
        assert [[r[k] for k in same] for r in by_model[model]] == [
            [r[k] for k in same] for r in by_model["ok"]
        ]
    assert {(r["why"], r["correct"]) for r in by_model["empty"]} == {("empty", 0)}
    assert max(count for body, count in bodies(upstream).items() if b"status-400" in body) == 1
    report = json.loads((folder / "run/report.json").read_text())
    [paid] = [line for line in report["cost"] if line["model"] == "ok"]
    assert (paid["calls"], paid["prompt_tokens"], paid["dollars"]) == (3, 9, 9.0)


def test_empty_outputs_are_explained_first(folder: Path, upstream: FaultyUpstream) -> None:
    """Empty outputs are explained first, with the option that keeps the rows."""
    done = collect(folder, "--model", "empty", "--questions", "3")
    assert rows_in(folder, "run/train.jsonl") == rows_in(folder, "run/test.jsonl") == []
    explanations = [line for line in done.stderr.splitlines() if "are empty" in line]
    assert explanations[0].startswith(
        "train.jsonl and test.jsonl are empty: models are right too often"
    )
    assert "--band 0 1" in explanations[0]
    kept = collect(folder, "--model", "empty", "--questions", "3", "--band", "0", "1", output="all")
    assert "are empty" not in kept.stderr
    assert rows_in(folder, "all/train.jsonl") + rows_in(folder, "all/test.jsonl")


def test_a_refused_key_ends_it_at_once(folder: Path, upstream: FaultyUpstream) -> None:
    """A refused key ends the command at once, without output."""
    done = collect(folder, "--model", "status-401", "--concurrency", "1")
    assert done.returncode == 2
    assert "refused the key for model status-401 (401)" in done.stderr
    assert len(upstream.requests) == 1
    assert not (folder / "run/rows.jsonl").exists()


def started(folder: Path, *options: str) -> WarmProcess:
    """Start the command with its output in the file `output`; return the process."""
    with (folder / "said").open("w") as output:
        arguments = command(folder, *options)
        return WarmProcess(arguments, stdout=output, stderr=output, cwd=ROOT, env=environment())


def kill_after(answers: int, upstream: FaultyUpstream, folder: Path, *options: str) -> None:
    """Start the command, and kill it with SIGKILL after this many answers."""
    upstream.forget()
    process = started(folder, *options)
    for number in range(answers):
        upstream.wait_for_request(number + 1, 30).proceed()
    upstream.wait_for_request(answers + 1, 30)
    process.kill()
    assert process.wait(10) == -signal.SIGKILL


def test_killed_twice_it_ends_with_what_one_run_has(folder: Path, upstream: FaultyUpstream) -> None:
    """Killed twice, a collection ends with the same files as one run, and pays no answer twice."""
    slow = ("--model", "slow", "--band", "0.1", "0.9", "--concurrency", "1")
    answered: Counter[bytes] = Counter()
    for _ in range(2):
        kill_after(3, upstream, folder, *slow)
        answered.update(request.body for request in upstream.requests[:3])
        with (folder / "run/answers.jsonl").open("ab") as file:
            file.write(b'{"key": "half a line')
    upstream.forget()
    is_over = threading.Event()

    def go_on() -> None:
        while not is_over.wait(0.01):
            for request in list(upstream.requests):
                request.proceed()

    thread = threading.Thread(target=go_on)
    thread.start()
    try:
        third = collect(folder, *slow)
        sent = bodies(upstream)
        upstream.forget()
        whole = collect(folder, *slow, output="whole")
    finally:
        is_over.set()
        thread.join()
    assert (third.returncode, whole.returncode) == (0, 0), third.stderr + whole.stderr
    assert "6 of 10 answers are there already" in third.stderr
    assert not set(answered) & set(sent)
    assert sum(answered.values()) == 6
    assert max(sent.values()) == 1
    for name in MADE:
        assert (folder / "run" / name).read_bytes() == (folder / "whole" / name).read_bytes()
    assert len(rows_in(folder)) == 10


def test_judges_grade_what_has_a_rubric(folder: Path, upstream: FaultyUpstream) -> None:
    """The first judge's verdict is the label; an unreadable one is requested once more (D02)."""
    row = {"id": 1, "question": "Write a poem", "rubric": "It rhymes"}
    (folder / "sums.jsonl").write_text(json.dumps(row) + "\n")
    assert "name it with --judge" in collect(folder, "--model", "ok").stderr
    judges = ("--judge", "say Verdict: correct", "--judge", "say Verdict: incorrect")
    done = collect(folder, "--model", "ok", "--model", "empty", *judges)
    assert done.returncode == 0, done.stderr
    right, empty = rows_in(folder)
    assert (right["correct"], right["graded_by"]) == (1, "rubric, by say Verdict: correct")
    assert list(right["verdicts"].values()) == [1, 0]
    assert (empty["correct"], empty["why"]) == (0, "empty")
    upstream.forget()
    unread = collect(folder, "--model", "ok", "--judge", "say well ..", output="unread")
    assert unread.returncode == 1
    assert "1 answer without a label" in unread.stderr
    judging = [request for request in upstream.requests if b"say well" in request.body]
    assert ["Answer with one line only" in r.json()["messages"][0]["content"] for r in judging] == [
        False,
        True,
    ]


def test_it_costs_no_more_than_it_may(folder: Path, upstream: FaultyUpstream) -> None:
    """The cost limit holds for the estimate and for the use, and answers are kept."""
    prices = ("--model", "ok", "--price", "ok=100000,0")  # 0.3 dollars for a call of three tokens
    estimated = collect(folder, *prices, "--estimate")
    assert estimated.returncode == 0
    assert "estimate for 10 questions: 10 calls" in estimated.stderr
    assert "that is more than --max-cost 1" in collect(folder, *prices, "--max-cost", "1").stderr
    assert upstream.requests == []
    (folder / "sums.jsonl").write_text("{}\n" + (folder / "sums.jsonl").read_text())
    # A reply has four tokens, not one.
    cheap = ("--model", "ok", "--price", "ok=0,100000", "--expect-tokens", "1")
    ended = collect(folder, *cheap, "--max-cost", "1.5", "--concurrency", "1")
    assert ended.returncode == 1
    assert "ended at --max-cost: 1.60 USD" in ended.stderr
    assert len(upstream.requests) == 4
    done = collect(folder, *cheap)
    assert done.returncode == 1  # because of the line that is no question
    assert ":1: neither 'gold'" in done.stderr
    assert len(upstream.requests) == 10
    assert "4.00 USD" in done.stdout


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ((), "collect needs"),
        (("--model", "ok", "--band", "0.8", "0.2"), "--band wants"),
        (("--model", "ok", "--price", "ok=cheap"), "MODEL=PROMPT,COMPLETION"),
        (("--model", "ok", "--with", '{"n": 5}'), "--with must be"),
    ],
)
def test_what_cannot_work_is_refused_in_a_sentence(
    folder: Path, upstream: FaultyUpstream, options: tuple[str, ...], message: str
) -> None:
    """An impossible request is refused in one sentence before any call."""
    done = collect(folder, *options)
    assert (done.returncode, upstream.requests) == (2, [])
    assert message in done.stderr


def test_members_of_requests_and_the_prompt_reach_upstream(
    folder: Path, upstream: FaultyUpstream
) -> None:
    """Members of --with, the prompt and the key reach the upstream."""
    named = ("--model", "ok", "--questions", "1")
    collect(folder, *named, "--with", '{"temperature": 0, "seed": 7}')
    first = upstream.last
    assert first.json()["seed"] == 7
    assert first.header("authorization") == "Bearer k"
    collect(folder, *named, "--with", '{"temperature": 1}')
    assert upstream.last.json()["temperature"] == 1
    assert len(upstream.requests) == 2


def test_two_collections_do_not_write_one_folder(folder: Path, upstream: FaultyUpstream) -> None:
    """A second collection to the same folder is refused while the first one runs."""
    process = started(folder, "--model", "slow", "--questions", "1")
    upstream.wait_for_request(1, 30)
    second = collect(folder, "--model", "ok")
    assert second.returncode == 2
    assert "another process collects to" in second.stderr
    upstream.last.proceed()
    assert process.wait(30) == 0


def test_the_demo_end_to_end(tmp_path: Path) -> None:
    """The example's questions give rows that other commands read, with two models and a judge."""
    example = ROOT / "examples/collect"
    done = run_cli(
        *("collect", str(example / "questions.jsonl"), "--config", str(example / "proxy.yaml")),
        *("--model", "demo", "--model", "demo-strong", "--judge", "demo-judge", "--as-it-is"),
        *("-o", str(tmp_path / "run")),
    )
    assert done.returncode == 0, done.stderr
    rows = rows_in(tmp_path)
    assert len(rows) == 20
    strong = [row for row in rows if row["model"] == "demo-strong"]
    assert all(row["correct"] for row in strong if row["benchmark"] == "demo-rules")
    wrong = {r["question_id"] for r in rows if r["model"] == "demo" and not r["correct"]}
    assert "demo-rules/prime-91" in wrong
    surveyed = run_cli("labels", str(tmp_path / "run/rows.jsonl"), "--json")
    [_, rules, _] = [json.loads(line) for line in surveyed.stdout.splitlines()]
    assert "binary" in rules["answer_formats"]
    elicited = run_cli(
        *("elicit", str(tmp_path / "run/rows.jsonl"), "--config", str(example / "proxy.yaml")),
        *("--stated", "--judge", "demo-judge", "--samples", "3"),
        *("-o", str(tmp_path / "run/elicited.jsonl")),
    )
    assert elicited.returncode == 0, elicited.stderr
    for row in rows_in(tmp_path, "run/elicited.jsonl"):
        assert (row["judge"], len(row["samples"])) == ("demo-judge", 3)
    listed = run_cli("collect", "--list").stdout
    assert len(listed.splitlines()) == 21
    assert "GPQA-Diamond" in listed
