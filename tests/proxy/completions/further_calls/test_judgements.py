"""What a judge's reply says: P(correct) by one token or in words; other replies say nothing."""

from __future__ import annotations

import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxy.completions.further_calls.judging import by_log_probabilities, by_words
from proxy.formats import RESPONSES, Choice
from proxy.formats.base.logprobs import LOWEST, summary, tokens_of


def said(text: Any, *tops: dict[str, float], **more: Any) -> Choice:
    """Return a judge's reply; `tops` has each token's alternatives with their probabilities."""
    content = [
        {
            "token": next(iter(top)),
            "logprob": math.log(next(iter(top.values()))),
            "top_logprobs": [{"token": t, "logprob": math.log(p)} for t, p in top.items()],
        }
        for top in tops
    ]
    message = {"role": "assistant", "content": text}
    return Choice(0, message, "stop", {"content": content} if tops else None, **more)


@pytest.mark.parametrize(
    ("text", "probability"),
    [
        ("True 83", 0.83),
        ("true, 83%", 0.83),
        ("False 7", 0.07),
        (" True: 100. ", 1.0),
        ("42", 0.42),
        ("0.42", 0.42),
        ("1", 0.01),
        ("1.5", 0.015),
        ("False 50", 0.5),
        ("1.0", None),  # a hundredth, or a certainty
        ("True", None),
        ("False 90", None),  # it contradicts itself
        ("True 7", None),
        ("True 101", None),
        ("True -3", None),
        ("I would say True 83", None),
        ("True 83 because it is", None),
        ("True 83\nFalse 7", None),
        ("", None),
        ("9" * 200, None),
        (None, None),
        ([{"type": "text", "text": "True 83"}], None),
    ],
)
def test_words(text: Any, probability: float | None) -> None:
    """Words must be one number only; if True or False is beside it, both must agree."""
    assert by_words(said(text)) == probability


@pytest.mark.parametrize("refusal", [{"is_refusal": True}, {"finish_reason": "content_filter"}])
def test_a_refusal_is_no_word(refusal: dict[str, Any]) -> None:
    """A refusal says nothing, whatever text comes with it."""
    choice = said("True 83", {"True": 0.9, "False": 0.1})
    for name, value in refusal.items():
        setattr(choice, name, value)
    assert by_words(choice) is None
    assert by_log_probabilities(choice) is None
    choice = said("True 83")
    choice.message["refusal"] = "I will not"
    assert by_words(choice) is None


@pytest.mark.parametrize(
    ("text", "tops", "probability"),
    [
        ("True 83", [{"True": 0.6, "False": 0.3}], 2 / 3),
        ("False 7", [{"False": 0.6, "True": 0.3, " true": 0.1}], 0.4),
        ("True", [{"\n": 0.9}, {" True": 0.8, "False": 0.2}], 0.8),
        ("True 83", [{"True": 0.9}], 0.9),  # the alternative is among the rest
        ("True 83", [{"True": 1.0}], 1.0),
        ("True 83", [{"Tr": 0.9}], None),  # the words count then
        ("True 83 I think", [{"True": 0.9}], None),
        ("83", [{"83": 0.9}], None),
        ("True 83", [], None),
    ],
)
def test_one_token(text: str, tops: list[dict[str, float]], probability: float | None) -> None:
    """P(True) counts all spellings of True and False at the first token that is no space."""
    found = by_log_probabilities(said(text, *tops))
    assert found == (None if probability is None else pytest.approx(probability))


def test_completions_say_it_otherwise() -> None:
    """The legacy form of log-probabilities, in three lists, gives the same."""
    logprobs = {
        "tokens": ["True", " 83"],
        "token_logprobs": [math.log(0.75), -0.1],
        "top_logprobs": [{"True": math.log(0.75), "False": math.log(0.25)}, None],
    }
    choice = Choice(0, {"content": "True 83"}, "stop", logprobs)
    assert by_log_probabilities(choice) == pytest.approx(0.75)
    assert summary(choice) == (pytest.approx((math.log(0.75) - 0.1) / 2), math.log(0.75))


def test_responses_say_it_beside_each_text() -> None:
    """Log-probabilities of `/v1/responses` are those of all texts in order, or None."""
    parts = [
        {"type": "output_text", "text": word, "logprobs": [{"token": word, "logprob": lowest}]}
        for word, lowest in (("True", -0.5), (" 83", -1.5))
    ]
    message = {"type": "message", "role": "assistant", "content": parts}
    items = [{"type": "reasoning", "summary": []}, message]
    response = {"object": "response", "status": "completed", "output": items}
    [choice] = RESPONSES.choices(response)
    assert summary(choice) == (-1.0, -1.5)
    for part in parts:
        part["logprobs"] = []
    assert RESPONSES.choices(response)[0].logprobs is None


@pytest.mark.parametrize(
    "value", [None, "x", True, math.nan, 0.5, math.inf, [], {}], ids=lambda each: str(each)
)
def test_what_is_no_log_probability_is_not_there(value: Any) -> None:
    """A log-probability that is no number is skipped; an impossible one counts as the lowest."""
    listed = [{"token": "a", "logprob": value}, {"token": "b", "logprob": -1.0}]
    assert summary(Choice(0, {}, None, {"content": listed})) == (-1.0, -1.0)
    impossible = [{"token": "a", "logprob": -math.inf}]
    assert summary(Choice(0, {}, None, {"content": impossible})) == (LOWEST, LOWEST)


json_values = st.recursive(
    st.none() | st.booleans() | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner),
    max_leaves=12,
)
named = st.dictionaries(
    st.sampled_from(["content", "tokens", "token_logprobs", "top_logprobs"]),
    json_values
    | st.lists(st.dictionaries(st.sampled_from(["token", "logprob", "top_logprobs"]), json_values)),
)


@given(named, st.text(max_size=20))
def test_whatever_an_upstream_sends_nothing_breaks(logprobs: dict[str, Any], text: str) -> None:
    """Whatever an upstream sends, P(correct) is from 0 to 1 or
    None, and every log-probability is finite and at most 0.
    """
    choice = Choice(0, {"content": text}, "stop", logprobs)
    assert all(LOWEST <= token.logprob <= 0 for token in tokens_of(choice))
    for found in (by_words(choice), by_log_probabilities(choice)):
        assert found is None or 0 <= found <= 1
