"""Feedback: labels by whoever asked, kept apart so that no estimate is biased by them."""

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
    """The request id of the header is enough, at once; a second word replaces the first."""
    id = asked(proxy)
    told = proxy.http.post(PATH, json={"request_id": id, "correct": False, "note": "Canberra"})
    assert told.status_code == 200
    assert told.json() == {
        "kept": 1,
        "not_found": 0,
        "results": [{"request_id": id, "status": "kept"}],
    }
    assert kept(proxy, id) == [(False, "a client", "Canberra")]
    assert proxy.http.post(PATH, json={"request_id": id, "correct": True}).status_code == 200
    assert kept(proxy, id) == [(True, "a client", None)]


def test_many_at_once(proxy: LiveProxy) -> None:
    """Each is told of on its own: one that is not there stops none of the others."""
    ids = [asked(proxy) for _ in range(3)]
    labels = [{"request_id": id, "correct": at % 2} for at, id in enumerate([*ids, "req_none"])]
    told = proxy.http.post(PATH, json={"feedback": labels}).json()
    assert (told["kept"], told["not_found"]) == (3, 1)
    assert [each["status"] for each in told["results"]] == ["kept"] * 3 + ["not_found"]
    assert [kept(proxy, id)[0][0] for id in ids] == [False, True, False]


def test_only_the_key_that_asked_may_say_something(proxy: LiveProxy) -> None:
    """To any other client the request is not there."""
    id = asked(proxy)
    other = {"authorization": "Bearer sk-other"}
    told = proxy.http.post(PATH, json={"request_id": id, "correct": True}, headers=other)
    assert (told.status_code, error_of(told)["code"]) == (404, "request_not_found")
    assert kept(proxy, id) == []


def test_feedback_by_client_keys(start_proxy: StartProxy) -> None:
    """Where keys are required one is needed, and its name says who it was."""
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
    """At the desk the path is the same, and the name is the reviewer's."""
    id = asked(proxy)
    told = proxy.desk.post(f"{API}/feedback", json={"request_id": id, "correct": False})
    assert told.json()["kept"] == 1
    assert kept(proxy, id) == [(False, "admin", None)]


@pytest.mark.parametrize(
    ("body", "said"),
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
def test_what_is_no_feedback_is_refused(proxy: LiveProxy, body: bytes, said: str) -> None:
    """With 400 and what is expected."""
    told = proxy.http.post(PATH, content=body)
    assert told.status_code == 400
    assert said in error_of(told)["message"]
    assert ("feedback[" in error_of(told)["message"]) == (b"[{" in body), "one label has no number"


def test_another_method_is_the_callers_mistake(proxy: LiveProxy) -> None:
    """What is possible there stands in the message, and in `allow`."""
    told = proxy.http.get(PATH)
    error = error_of(told)
    assert (told.status_code, error["type"], told.headers["allow"]) == (
        405,
        "invalid_request_error",
        "POST",
    )
    assert error["message"] == f"GET is not possible at {PATH}, but POST is"


def test_too_much_at_once_is_refused(proxy: LiveProxy) -> None:
    """More labels than a request may have, or more bytes."""
    labels = [{"request_id": f"req_{n}", "correct": True} for n in range(1_001)]
    assert proxy.http.post(PATH, json={"feedback": labels}).status_code == 400
    assert proxy.http.post(PATH, content=b" " * (17 * 2**20)).status_code == 413


# What it may not do


def rows(count: int) -> list[Json]:
    return [
        {"id": f"r{n}", "question_id": f"q{n}", "question": f"How much is {n} + {n}?"}
        | {"response": f"It is {2 * n}. p=0.{50 + n % 50}", "model": "m", "correct": n % 4 > 0}
        for n in range(count)
    ]


def test_volunteered_labels_move_no_estimate(findings: VerdictStore, store_url: str) -> None:
    """People complain of what is wrong: a flood of such labels, on replies that were drawn too,
    changes no estimate, no monitor, no certificate and no agreement.
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
    """A label that somebody changes later is found."""
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
    """Every line that can be kept is, packed or not; the others are named; estimate tells apart."""
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
    told = run_cli("report", "estimate", "--config", str(config)).stdout
    assert "volunteered labels" in told
    assert "no estimate counts them" in told


def test_export_tells_feedback_from_verdicts(start_proxy: StartProxy, tmp_path: Path) -> None:
    """An exported row has it beside the reviewers' labels; `correct` is what reviewers say."""
    hold = "{version: 1, name: desk, default: hold}"
    proxy = start_proxy(policy=hold, **DESK)
    id = asked(proxy)
    proxy.http.post(PATH, json={"request_id": id, "correct": True, "note": "good"})
    config = tmp_path / "proxy.yaml"
    config.write_text(f"store: {proxy.config.store}\n")
    (row,) = map(json.loads, run_cli("export", "--config", str(config)).stdout.splitlines())
    (said,) = row["feedback"]
    assert (said["by"], said["correct"], said["note"]) == ("a client", 1, "good")
    assert "correct" not in row
    assert run_cli("export", "--labelled", "--config", str(config)).stdout == ""
    review = proxy.desk.get(f"{API}/reviews/{row['id']}").json()
    assert review["feedback"][0]["note"] == "good"
