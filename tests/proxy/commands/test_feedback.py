"""Feedback: labels by those who asked, kept separately so that they bias no estimate."""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from calibrator import load_scorer
from proxy.learning.labels import POPULATIONS, read_labels
from proxy.store.database.verdicts import VerdictStore
from proxy.store.record.reader import verdicts_after
from proxy.store.verdicts.drift import judged_after
from proxy.store.verdicts.feedback import Feedback, FeedbackStore, feedback_counts
from proxy.store.verdicts.labels import all_verdicts
from proxy.store.verdicts.statistics import judged_replies as labelled_facts
from tests.builders.recorded_verdicts import record
from tests.conftest import StartProxy
from tests.running.client_keys import bearer, make_key
from tests.running.databases import execute
from tests.running.desk_client import API, DESK
from tests.running.live_proxy import LiveProxy, error_of, run_cli, until

PATH = "/pinocchio/v1/feedback"
Json = dict[str, Any]


@pytest.fixture(scope="module")
def proxy(start_proxy: StartProxy) -> LiveProxy:
    return start_proxy(**DESK)


@pytest.fixture
def findings(store_url: str) -> Iterator[VerdictStore]:
    """Yield a store without a proxy, on both databases."""
    findings = VerdictStore(store_url)
    yield findings
    findings.close()


def asked(proxy: LiveProxy, **headers: str) -> str:
    """Return the id of a delivered reply."""
    return str(proxy.ask(headers=headers).headers["x-pinocchio-request-id"])


def kept(proxy: LiveProxy, request_id: str) -> list[tuple[Any, ...]]:
    query = "SELECT is_correct, given_by, note FROM feedback WHERE request_id = :id ORDER BY id"
    return execute(proxy.config.store, query, id=request_id)


# Over HTTP


def test_a_thumb_on_a_reply_that_has_just_come(proxy: LiveProxy) -> None:
    """The request id in the header is enough for feedback; a second label replaces the first."""
    id = asked(proxy)
    answer = proxy.http.post(PATH, json={"request_id": id, "correct": False, "note": "Canberra"})
    assert answer.status_code == 200
    assert answer.json() == {
        "kept": 1,
        "not_found": 0,
        "results": [{"request_id": id, "status": "kept"}],
    }
    assert kept(proxy, id) == [(False, "a client", "Canberra")]
    assert proxy.http.post(PATH, json={"request_id": id, "correct": True}).status_code == 200
    assert kept(proxy, id) == [(True, "a client", None)]


def test_many_at_once(proxy: LiveProxy) -> None:
    """Each label of many has its own result, and an unknown id does not stop the others."""
    ids = [asked(proxy) for _ in range(3)]
    labels = [{"request_id": id, "correct": at % 2} for at, id in enumerate([*ids, "req_none"])]
    answer = proxy.http.post(PATH, json={"feedback": labels}).json()
    assert (answer["kept"], answer["not_found"]) == (3, 1)
    assert [each["status"] for each in answer["results"]] == ["kept"] * 3 + ["not_found"]
    assert [kept(proxy, id)[0][0] for id in ids] == [False, True, False]


def test_only_the_key_that_asked_may_say_something(proxy: LiveProxy) -> None:
    """To any other client than the one that asked, the request does not exist."""
    id = asked(proxy)
    other = {"authorization": "Bearer sk-other"}
    answer = proxy.http.post(PATH, json={"request_id": id, "correct": True}, headers=other)
    assert (answer.status_code, error_of(answer)["code"]) == (404, "request_not_found")
    assert kept(proxy, id) == []


def test_feedback_by_client_keys(start_proxy: StartProxy) -> None:
    """Where keys are required feedback needs one, and is stored under its name."""
    proxy = start_proxy(keys="required", upstream={"api_key": "sk-upstream"})
    secret, _ = make_key(proxy.store_path, name="shop")
    stranger, _ = make_key(proxy.store_path, name="other")
    until(lambda: proxy.ask(headers=bearer(stranger)).status_code == 200)
    body = {"request_id": asked(proxy, **bearer(secret)), "correct": False}
    assert httpx.post(proxy.url + PATH, json=body).status_code == 401
    assert proxy.http.post(PATH, json=body, headers=bearer(stranger)).status_code == 404
    assert proxy.http.post(PATH, json=body, headers=bearer(secret)).status_code == 200
    assert kept(proxy, body["request_id"]) == [(False, "shop", None)]


def test_a_reviewer_may_say_something_of_any_reply(proxy: LiveProxy) -> None:
    """A reviewer can give feedback at the desk on any reply, under the reviewer's name."""
    id = asked(proxy)
    answer = proxy.desk.post(f"{API}/feedback", json={"request_id": id, "correct": False})
    assert answer.json()["kept"] == 1
    assert kept(proxy, id) == [(False, "admin", None)]


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        (b"{", "not JSON"),
        (b"[]", "send an object with request_id and correct"),
        (b'{"feedback": []}', "send an object with request_id and correct"),
        (b'{"correct": true}', "no request_id"),
        (b'{"request_id": "req_1"}', "'correct' must be true or false"),
        (b'{"request_id": "req_1", "correct": "yes"}', "'correct' must be true or false"),
        (b'{"request_id": "req_1", "label": 1}', "the label is called 'correct'"),
        (b'{"request_id": "req_1", "correct": 1, "note": 5}', "'note' must be text"),
        (b'{"feedback": [{"request_id": "req_1", "correct": true}, 5]}', "feedback[1]: a label"),
    ],
)
def test_what_is_no_feedback_is_refused(proxy: LiveProxy, body: bytes, expected: str) -> None:
    """Invalid feedback gets 400 with what is expected."""
    answer = proxy.http.post(PATH, content=body)
    assert answer.status_code == 400
    assert expected in error_of(answer)["message"]
    assert ("feedback[" in error_of(answer)["message"]) == (b"[{" in body), (
        "one label has no number"
    )


def test_another_method_is_the_callers_mistake(proxy: LiveProxy) -> None:
    """Another method gets 405 with the allowed one in the message and in `allow`."""
    answer = proxy.http.get(PATH)
    error = error_of(answer)
    assert (answer.status_code, error["type"], answer.headers["allow"]) == (
        405,
        "invalid_request_error",
        "POST",
    )
    assert error["message"] == f"GET is not possible at {PATH}, but POST is"


def test_too_much_at_once_is_refused(proxy: LiveProxy) -> None:
    """More labels or bytes than a request may have are refused."""
    labels = [{"request_id": f"req_{n}", "correct": True} for n in range(1_001)]
    assert proxy.http.post(PATH, json={"feedback": labels}).status_code == 400
    assert proxy.http.post(PATH, content=b" " * (17 * 2**20)).status_code == 413


# What feedback may not do


def rows(count: int) -> list[Json]:
    return [
        {"id": f"r{n}", "question_id": f"q{n}", "question": f"How much is {n} + {n}?"}
        | {"response": f"It is {2 * n}. p=0.{50 + n % 50}", "model": "m", "correct": n % 4 > 0}
        for n in range(count)
    ]


def test_volunteered_labels_move_no_estimate(findings: VerdictStore, store_url: str) -> None:
    """A flood of feedback, which is mostly complaints, changes no
    estimate, monitor, certificate or agreement, also on audited replies.
    """
    ids = record(store_url, rows(60), load_scorer("fake:0.7"), share=0.5)
    for at, id in enumerate(ids[::2]):
        findings.give_verdict(id, at % 4 > 0, "alice")

    def seen() -> Any:
        labels = read_labels(findings.engine)
        return (
            labels,
            [repr(labels.of(each).estimate(each)) for each in POPULATIONS],
            judged_after(findings.engine, 0, 1_000),
            verdicts_after(findings.engine, 0),
            labelled_facts(findings.engine, 0.0),
            all_verdicts(findings.engine),
        )

    before = seen()
    assert len(before[0].replies) == 30
    store = FeedbackStore(lambda: findings.engine)
    wrong = [Feedback(id, is_correct=False) for id in ids]
    assert store.keep(wrong, "shop") == ["kept"] * len(ids)
    assert store.keep(wrong[:10], "alice") == ["kept"] * 10
    assert repr(seen()) == repr(before)
    assert feedback_counts(findings.engine) == (len(ids) + 10, len(ids) + 10)


def test_it_is_part_of_the_chain(findings: VerdictStore, store_url: str) -> None:
    """A label that somebody changes later breaks the audit chain."""
    from proxy.store.database.chain import chain_key
    from proxy.store.verification import verify

    ids = record(store_url, rows(3), load_scorer("fake:0.7"))
    store = FeedbackStore(lambda: findings.engine)
    store.keep([Feedback(id, is_correct=True, note="fine") for id in ids], "shop")
    if (key := chain_key(store_url)) is None:
        pytest.skip("this database has no key of its own")
    assert verify(findings.engine, key).is_intact
    execute(store_url, "UPDATE feedback SET note = 'bad' WHERE request_id = :id", id=ids[0])
    found = verify(findings.engine, key)
    assert [each.what for each in found.breaks] == ["row_changed"]
    assert found.breaks[0].of == "feedback"


# On the command line


def test_the_command_keeps_a_file(proxy: LiveProxy, tmp_path: Path) -> None:
    """All valid lines of a file are stored and the others named; `estimate` keeps them apart."""
    ids = [asked(proxy) for _ in range(2)]
    for id in ids:
        proxy.recorded(id, "facts")  # waits until it is written
    lines = [json.dumps({"request_id": id, "correct": False, "note": "no"}) for id in ids]
    file = tmp_path / "labels.jsonl.gz"
    file.write_bytes(gzip.compress("\n".join([*lines, "", "{", '{"request_id": "x"}']).encode()))
    config = tmp_path / "proxy.yaml"
    config.write_text(f"store: {proxy.config.store}\n")
    done = run_cli("label", str(file), "--feedback", "--config", str(config), "--as", "alice")
    assert done.returncode == 1
    assert "2 labels kept, 2 not" in done.stdout
    assert f"{file}:4: no JSON" in done.stderr
    assert f"{file}:5: 'correct' must be true or false" in done.stderr
    assert kept(proxy, ids[0]) == [(False, "alice", "no")]
    output = run_cli("report", "estimate", "--config", str(config)).stdout
    assert "volunteered labels" in output
    assert "no estimate counts them" in output


def test_export_tells_feedback_from_verdicts(start_proxy: StartProxy, tmp_path: Path) -> None:
    """An exported row has feedback beside the verdicts, and `correct` is the reviewers'."""
    hold = "{version: 1, name: desk, default: hold}"
    proxy = start_proxy(policy=hold, **DESK)
    id = asked(proxy)
    proxy.http.post(PATH, json={"request_id": id, "correct": True, "note": "good"})
    config = tmp_path / "proxy.yaml"
    config.write_text(f"store: {proxy.config.store}\n")
    (row,) = map(json.loads, run_cli("export", "--config", str(config)).stdout.splitlines())
    (given_feedback,) = row["feedback"]
    assert (given_feedback["by"], given_feedback["correct"], given_feedback["note"]) == (
        "a client",
        1,
        "good",
    )
    assert "correct" not in row
    assert run_cli("export", "--labelled", "--config", str(config)).stdout == ""
    review = proxy.desk.get(f"{API}/reviews/{row['id']}").json()
    assert review["feedback"][0]["note"] == "good"
