"""Drift monitors count each conversation once: repeated requests are no drift."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

import pytest

from calibrator import FakeScorer
from policies import (
    Certificate,
    Facts,
    LabelledScore,
    Scope,
    SeenConversations,
    certify,
    parse_policy,
)
from policies.deciding.policy import with_certificate
from proxy.exchange.request import CompletionRequest
from proxy.formats.chat import ChatFormat
from proxy.holds.openings import Openings
from proxy.learning.certificates import CertifiedPolicy
from proxy.learning.certifying import audited_labels
from proxy.learning.drift import look, monitor_states
from proxy.learning.labels import read_labels
from proxy.store.database.verdicts import VerdictStore
from proxy.store.record.writer import COLUMNS, Records
from tests.builders.conversing_traffic import (
    ScoredRequest,
    agents,
    chats,
    documents,
    examples,
    harder,
    load_tests,
    retries,
    singles,
    usual,
)
from tests.builders.recorded_verdicts import label
from tests.builders.recorded_verdicts import record as saved
from tests.proxy.learning.test_certified import GATE
from tests.running.databases import execute

Traffic = Callable[..., Iterator[ScoredRequest]]
SHAPES = (
    *(chats, agents, load_tests),
    *(pytest.param(one, marks=pytest.mark.slow) for one in (singles, retries, examples, documents)),
)
CHAT = ChatFormat()
BEGAN = time.time() - 7_200
# the number of monitors, each with a false alarm at a probability of 1 %, and the most false alarms
# allowed; more have a probability of 2 %
MONITORS = [(10, 1), pytest.param(60, 2, marks=pytest.mark.slow)]
CERTIFICATES = [(12, 1), pytest.param(100, 3, marks=pytest.mark.slow)]


def conversations(traffic: Iterable[ScoredRequest]) -> Iterator[tuple[str, float]]:
    """Yield each request's conversation, as the proxy finds it, with its score."""
    openings = Openings()
    for sent in traffic:
        request = CompletionRequest(CHAT, b"", sent.payload, "m", is_stream=False)
        yield openings.conversation_of(request), sent.score


def record(url: str, traffic: dict[str, list[tuple[str, float]]], began: float = BEGAN) -> None:
    """Write these requests to a store as a proxy does: by model, one a second."""
    most = sum(map(len, traffic.values()))
    records = Records(url, max_queue=most)
    records.open()
    rng = random.Random(0)
    for model, seen in traffic.items():
        for number, (conversation, score) in enumerate(seen):
            at = began + number
            values = {
                "request_id": f"req_{int(at * 1_000):012x}{rng.getrandbits(80):020x}",
                "started_at": at,
                "key_hash": "k",
                "path": "/v1/chat/completions",
                "upstream": "u",
                "model": model,
                "is_stream": 0,
                "status": 200,
                "confidence": score,
                "action": "deliver",
                "calibrator": "c@1",
                "total_ms": 1.0,
                "overhead_ms": 0.1,
                "conversation": conversation,
            }
            records.add(tuple(values.get(column) for column in COLUMNS))
    records.close()
    assert records.shed == 0


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize(("monitors", "most_false"), MONITORS)
def test_stationary_traffic_of_any_shape_is_no_drift(
    monitors: int, most_false: int, shape: Traffic, tmp_path: Path
) -> None:
    """Stationary traffic of any shape raises hardly a false alarm in 600 requests a model."""
    url = f"sqlite:///{tmp_path / 'store.db'}"
    record(
        url,
        {f"m{n}": [*conversations(shape(random.Random(n), 600))] for n in range(monitors)},
    )
    findings = VerdictStore(url)
    alarms = look(findings.engine)
    stands = monitor_states(findings.engine)
    findings.close()
    assert len(alarms) <= most_false, [alarm.key.model for alarm in alarms]
    assert len(stands) == monitors
    assert min(each.seen for each in stands) >= 50, "and they do look at it"


@pytest.mark.parametrize("shape", SHAPES)
def test_true_drift_is_seen_in_traffic_of_any_shape(shape: Traffic, tmp_path: Path) -> None:
    """Drift is found in traffic of any shape: two models with harder questions raise two alarms."""
    url = f"sqlite:///{tmp_path / 'store.db'}"
    found = {}
    for n in range(2):
        rng = random.Random(n)
        before, after = shape(rng, 1_500), shape(rng, 3_500, worth=harder)
        found[f"m{n}"] = [*conversations([*before, *after])]
    record(url, found)
    findings = VerdictStore(url)
    alarms = look(findings.engine)
    findings.close()
    assert len(alarms) == 2


def test_a_look_in_parts_counts_a_conversation_once(tmp_path: Path) -> None:
    """A conversation that counted at an earlier look does not count again."""
    url = f"sqlite:///{tmp_path / 'store.db'}"
    scores = [*conversations(retries(random.Random(1), 300))]
    findings = VerdictStore(url)
    for start in range(0, 300, 50):
        record(url, {"m": scores[start : start + 50]}, BEGAN + start)
        look(findings.engine)
    [monitor] = monitor_states(findings.engine)
    findings.close()
    assert monitor.seen == len({conversation for conversation, _ in scores})


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize(("certificates", "most_withdrawn"), CERTIFICATES)
def test_stationary_traffic_of_any_shape_keeps_certificates(
    certificates: int, most_withdrawn: int, shape: Traffic
) -> None:
    """Stationary traffic of any shape withdraws hardly a certificate."""
    withdrawn = sum(is_withdrawn(shape, usual, seed) for seed in range(certificates))
    assert withdrawn <= most_withdrawn


@pytest.mark.parametrize("shape", SHAPES)
def test_true_drift_withdraws_certificates(shape: Traffic) -> None:
    """Drift withdraws at least five of six certificates, in traffic of any shape."""
    assert sum(is_withdrawn(shape, harder, seed) for seed in range(6)) >= 5


def is_withdrawn(shape: Traffic, worth: Callable[[random.Random], float], seed: int) -> bool:
    """Return whether 1,000 requests of such traffic withdraw a certificate from usual labels."""
    rng = random.Random(seed)
    rows = [LabelledScore(str(n), usual(rng), is_correct=True) for n in range(400)]
    grant = certify(rows, 0.3, 0.9).grant("c@1", Scope())
    policy = with_certificate(
        parse_policy(GATE.replace("0.1", "0.3"), "gate.yaml"), Certificate((grant,), "2026-01-01")
    )
    followed = CertifiedPolicy(policy)
    for conversation, score in conversations(shape(rng, 1_000, worth=worth)):
        facts = Facts(score, "m", calibrator="c@1", conversation=conversation)
        if followed.see(facts):
            return True
    return False


def test_a_conversation_counts_again_after_a_day() -> None:
    """A conversation counts again after a day, and the oldest ones are forgotten."""
    seen = SeenConversations(most=2)
    assert [seen.is_first("a", at_s) for at_s in (0, 86_399, 86_400, 86_401)] == [
        *(True, False, True, False)
    ]
    assert [seen.is_first(name, 86_402) for name in ("b", "c", "b", "a")] == [
        *(True, True, False, True)
    ]
    assert all(seen.is_first(None) for _ in range(3))


def test_estimates_and_certificates_take_one_label_of_a_conversation(store_url: str) -> None:
    """Only the first audited reply of a conversation counts for estimates and certificates.

    Eighty audited replies in forty conversations of two give forty labels. Two draws of a tenth
    have a probability of 0.19.
    """
    rows = [
        {"question": f"{n}?", "response": "yes", "model": "m", "correct": 1, "question_id": f"{n}"}
        for n in range(80)
    ]
    ids = saved(store_url, rows, FakeScorer(0.7), share=0.1)
    for n, id in enumerate(ids):
        statement = f"UPDATE exchanges SET conversation = 'c{n // 2}' WHERE request_id = '{id}'"
        execute(store_url, statement)
    label(store_url, ids, rows)
    findings = VerdictStore(store_url)
    labels = read_labels(findings.engine)
    assert [each.request_id for each in labels.replies] == ids[::2]
    assert labels.totals.delivered == 40
    assert {round(each.share or 0, 9) for each in labels.replies} == {0.19}
    found = audited_labels(findings.engine, 0.0, FakeScorer(0.7).name, Scope())
    findings.close()
    assert len(found) == 40
    assert {each.is_first for each in found if each.id in ids[::2]} <= {True}
    assert {each.is_first for each in found if each.id in ids[1::2]} == {False}
    grant = certify([*found, LabelledScore("x", 0.99, True)], 0.5, 0.9)
    assert sum(grant.scores) == sum(each.is_first for each in found) + 1
