"""`ask`: how many replies, from which models, for which requests."""

from __future__ import annotations

import pytest

from policies import (
    Facts,
    InvalidDocumentError,
    ReplyCounts,
    parse_policy,
    surest,
)
from policies.conditions.conditions import When
from policies.conditions.globs import Globs


def text(line: str) -> str:
    default = "" if line.startswith("default") else "default: hold\n"
    return f"version: 1\nname: p\n{default}{line}\n"


@pytest.mark.parametrize(
    ("ask", "expected"),
    [
        ("{n: 3}", ReplyCounts(3)),
        ("{models: [a, b]}", ReplyCounts(1, ("a", "b"))),
        ("{models: a, n: 2}", ReplyCounts(2, ("a",))),
        ("{n: 2, when: {domain: law}}", ReplyCounts(2, (), When(domain=Globs(("law",))))),
    ],
)
def test_asking_reads_as_written(ask: str, expected: ReplyCounts) -> None:
    """`ask` is parsed into its counts, models and condition."""
    assert parse_policy(text(f"ask: {ask}"), "p.yaml").ask == expected


@pytest.mark.parametrize(
    ("ask", "problem"),
    [
        ("{}", "ask needs n or models"),
        ("{n: 1}", "ask must come to 2 to 8 replies"),
        ("{n: 3, models: [a, b, c]}", "ask must come to 2 to 8 replies"),
        ("{n: two}", "ask.n must be a whole number from 1 to 8, not 'two'"),
        ("{n: 2, when: {tools: any}}", "unknown key 'tools' in ask.when"),
        ("[a]", "ask must be a mapping, not a list"),
    ],
)
def test_a_wrong_ask_is_refused(ask: str, problem: str) -> None:
    """A wrong `ask` is refused with its line and the problem."""
    with pytest.raises(InvalidDocumentError) as caught:
        parse_policy(text(f"ask: {ask}"), "p.yaml")
    assert str(caught.value).startswith(f"p.yaml:4: {problem}")


def test_other_requests_are_sent_once() -> None:
    """Requests that do not meet the condition, or want several choices, are sent once."""
    ask = ReplyCounts(2, ("a", "b"), When(domain=Globs(("law",))))
    assert ask.models_for(Facts(None, "m", domain="law")) == ("a", "b", "a", "b")
    assert ask.models_for(Facts(None, "m")) == ("m",)
    assert ask.models_for(Facts(None, "m", domain="law", n=3)) == ("m",)


@pytest.mark.parametrize(
    ("confidences", "index"),
    [([0.2, 0.9, 0.5], 1), ([0.5, 0.5], 0), ([None, 0.0], 1), ([None, None], 0)],
)
def test_the_surest_reply_is_taken(confidences: list[float | None], index: int) -> None:
    """The surest reply is taken, the first of equals; one without a score only if none has one."""
    assert surest(confidences) == index
