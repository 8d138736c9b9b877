"""The plain requests that teach the inspector: their form and variety."""

from __future__ import annotations

import re
from collections import Counter

from calibrator.lab.training.fits.inspection.lessons import plain_requests
from calibrator.readers.evidence.acts import recognise
from calibrator.readers.evidence.conversation import Conversation


def test_there_are_a_thousand_pairs_of_texts() -> None:
    """Every entry is a request and a reply, and there are at least 1,000 of them."""
    pairs = plain_requests()
    assert len(pairs) >= 1_000
    assert all(isinstance(text, str) and text.strip() for pair in pairs for text in pair)


def test_no_request_and_hardly_any_reply_occurs_twice() -> None:
    """No request and no reply occurs twice."""
    pairs = plain_requests()
    requests = [" ".join(request.lower().split()) for request, _ in pairs]
    replies = Counter(" ".join(reply.lower().split()) for _, reply in pairs)
    assert len(set(requests)) == len(requests)
    assert [reply for reply, times in replies.items() if times > 1] == []


def test_replies_have_the_length_of_replies() -> None:
    """Most replies are a sentence or two; none is a page."""
    lengths = sorted(len(reply) for _, reply in plain_requests())
    assert 25 <= lengths[len(lengths) // 2] <= 120
    assert lengths[-1] <= 400


def test_beginnings_vary() -> None:
    """No more than a few requests or replies begin alike."""
    pairs = plain_requests()
    requests = Counter(tuple(request.lower().split()[:4]) for request, _ in pairs)
    replies = Counter(tuple(reply.lower().split()[:3]) for _, reply in pairs)
    assert max(count for words, count in requests.items() if len(words) == 4) <= 6
    assert max(count for words, count in replies.items() if len(words) == 3) <= 12


def test_every_act_is_among_them() -> None:
    """Refusals, questions back, small talk, data and code are among the replies."""
    pairs = plain_requests()
    kinds = Counter(recognise(Conversation(request), reply).kind for request, reply in pairs)
    wanted = {"refusal", "clarification", "small_talk", "unknown", "code", "data", "summary"}
    assert {kind for kind in wanted if kinds[kind] < 8} == set()


def test_other_languages_are_among_them() -> None:
    """Fifty replies are in a script other than Latin, and 120 have letters beyond ASCII."""
    replies = [reply for _, reply in plain_requests()]
    assert sum(bool(re.search(r"[\u0370-\uffdc]", reply)) for reply in replies) >= 50
    assert sum(not reply.isascii() for reply in replies) >= 120
