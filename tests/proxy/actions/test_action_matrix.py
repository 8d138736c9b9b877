"""Each action x way of sending x n x kind of reply: what the official client gets.

The ways are one object, a stream that is buffered, a stream whose tool calls alone are withheld,
and a live stream under a policy in shadow. Combinations that make no sense are refused when the
policy is loaded; the last tests are about those.
"""

from __future__ import annotations

import itertools
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from openai import APIError, APIStatusError

from policies import InvalidDocumentError, load_policy
from proxy.store.reviews.held_replies import RELEASED
from tests.conftest import StartProxy
from tests.proxy.actions.test_actions import ACTION, WEATHER
from tests.proxy.holds.test_holds import ASYNC, verdict
from tests.running.live_proxy import LiveProxy, question

ACTIONS = {
    "deliver": "deliver",
    "notice": "{deliver: {notice: Check this.}}",
    "annotate": "{annotate: {label: unverified}}",
    "clarify": "{clarify: {text: Which one}}",
    "clarify, written": "{clarify: {ask: generate, model: say Which one, text: otherwise}}",
    "escalate": "{escalate: {to: say strong p=0.8}}",
    "escalate, ladder": "{escalate: {to: [say weak p=0.2, say strong p=0.8]}}",
    "hold": "hold",
    "hold placeholder": "{hold: {reply: placeholder}}",
    "hold refusal": "{hold: {reply: refusal}}",
    "hold error": "{hold: {reply: error}}",
    "hold wait, released": "{hold: {reply: wait, wait: 20s}}",
    "hold wait, over": "{hold: {reply: wait, wait: 1s}}",
    "hold async": "{hold: {reply: async}}",
    "block": "block",
    "block message": "{block: {message: Ask a lawyer.}}",
}
WAYS = ("object", "buffered", "calls withheld", "live")
KINDS = {"text": "ok", "call": "tools"}  # with the upstream's model that replies so
REFUSED = [("notice", "calls withheld")]
PATIENT = {"stream_wait_ms": 5_000}  # so that a score on a busy machine is not late
CASES = [
    case
    for case in itertools.product(ACTIONS, WAYS, (1, 2), KINDS)
    if (case[0], case[1]) not in REFUSED
]


@dataclass
class Got:
    """What the client gets: a reply's parts, or the code of an error."""

    texts: list[str]
    calls: list[str]
    reasons: list[str | None]
    member: dict[str, Any]
    action: str | None = None
    status: int = 200
    code: str | None = None
    message: str = ""


def policy(action: str, way: str) -> str:
    """Return a policy that does the action below 0.3.

    It is about tool calls alone if they are withheld.
    """
    tools = ", tools: any" if way == "calls withheld" else ""
    mode = "shadow" if way == "live" else "enforce"
    rule = f"{{name: r, when: {{confidence: {{below: 0.3}}{tools}}}, then: {ACTIONS[action]}}}"
    head = f"version: 1\nname: desk\nmode: {mode}\non_score_error: deliver"
    return f"{head}\nrules: [{rule}]\ndefault: deliver"


def ask(proxy: LiveProxy, way: str, body: dict[str, Any], headers: dict[str, str]) -> Got:
    """Return what the openai client reads from the reply."""
    client = proxy.openai.chat.completions.with_raw_response
    try:
        raw = client.create(**body, stream=way != "object", extra_headers=headers)
    except APIStatusError as error:
        action = error.response.headers.get(ACTION)
        status, code = error.status_code, error.code
        return Got([], [], [], {}, action, status, code, error.message)
    got = Got([], [], [], {}, raw.headers.get(ACTION), raw.http_response.status_code)
    if way == "object":
        _read_object(raw.parse(), got)
        return got
    try:
        _read_stream(raw.parse(), got, body["n"])
    except APIError as error:
        got.code, got.message = error.code, error.message
    return got


def _read_object(completion: Any, got: Got) -> None:
    got.member = completion.model_extra["pinocchio"]
    for choice in completion.choices:
        got.texts.append(choice.message.content or "")
        got.calls.append("".join(c.function.arguments for c in choice.message.tool_calls or []))
        got.reasons.append(choice.finish_reason)


def _read_stream(stream: Any, got: Got, n: int) -> None:
    got.texts, got.calls, got.reasons = [""] * n, [""] * n, [None] * n
    for chunk in stream:
        got.member |= (chunk.model_extra or {}).get("pinocchio", {})
        for choice in chunk.choices:
            at, calls = choice.index, choice.delta.tool_calls or []
            got.texts[at] += choice.delta.content or ""
            got.calls[at] += "".join(call.function.arguments or "" for call in calls)
            got.reasons[at] = choice.finish_reason or got.reasons[at]


def expected(action: str, way: str, kind: str) -> str:
    """Return in one word what the client must get."""
    if way == "live" or (way == "calls withheld" and kind == "text"):
        return "reply"
    by_kind = "placeholder" if kind == "text" else "held_for_review"
    return {
        "deliver": "reply",
        "notice": "noticed" if kind == "text" else "reply",
        "annotate": "reply",
        "clarify": "clarification",
        "clarify, written": "clarification",
        "escalate": "strong reply",
        # A rule about calls would not escalate a text again.
        "escalate, ladder": "weak reply" if way == "calls withheld" else "strong reply",
        "hold": by_kind,
        "hold placeholder": "placeholder",
        "hold refusal": "refusal",
        "hold error": "held_for_review",
        "hold wait, released": "reply",
        "hold wait, over": by_kind,
        "hold async": "later" if way == "object" else by_kind,
        "block": "blocked_by_policy",
        "block message": "blocked_by_policy",
    }[action]


@pytest.mark.parametrize(
    ("action", "way", "n", "kind"), CASES, ids=["-".join(map(str, case)) for case in CASES]
)
def test_the_client_gets_what_the_action_says(
    start_proxy: StartProxy, action: str, way: str, n: int, kind: str
) -> None:
    """Every combination gives exactly these texts, calls and finish reasons, or this error."""
    proxy = start_proxy(policy=policy(action, way), limits=PATIENT)
    text = f"{action} {way} {n} {kind} p=0.1"
    body = question(text, KINDS[kind], tools=[WEATHER], n=n)
    must = expected(action, way, kind)
    is_held = way != "live" and (way, kind) != ("calls withheld", "text")
    is_reviewed = is_held and action == "hold wait, released"
    with verdict(proxy, text, RELEASED) if is_reviewed else nullcontext():
        got = ask(proxy, way, body, ASYNC if action == "hold async" else {})
    _check(got, must, text, n, kind, is_event=way == "calls withheld")
    _check_told(got, action, way, kind)


def _check(got: Got, must: str, text: str, n: int, kind: str, *, is_event: bool) -> None:
    """Check the parts of the reply, or the error."""
    calls, no_calls = [f'{{"city": "{text}", "number": 0}}'] * n, [""] * n
    if must == "reply":
        texts = [text] * n if kind == "text" else [""] * n
        reason = "stop" if kind == "text" else "tool_calls"
        parts = (texts, no_calls if kind == "text" else calls, [reason] * n)
    elif must == "noticed":
        parts = ([f"{text}\n\nCheck this."] * n, no_calls, ["stop"] * n)
    elif must == "clarification":
        parts = (["Which one"] * n, no_calls, ["stop"] * n)
    elif must in ("weak reply", "strong reply"):
        other = "strong p=0.8" if must == "strong reply" else "weak p=0.2"
        parts = ([other] * n, no_calls, ["stop"] * n)
    elif must == "refusal":
        assert all(got.member["review_id"] in each for each in got.texts)
        assert all(("Not done: get_weather." in each) is (kind == "call") for each in got.texts)
        assert (got.calls, got.reasons, got.status) == (no_calls, ["stop"] * n, 200)
        return
    elif must in ("placeholder", "later"):
        assert got.member["review_id"] not in got.texts[0]  # the id is for people, not for programs
        assert (got.calls[0], got.reasons[0]) == ("", "content_filter")
        assert "".join(got.calls) == ""
        assert got.status == (202 if must == "later" else 200)
        return
    else:
        assert (got.code, "".join(got.texts + got.calls)) == (must, "")
        assert got.status == (200 if is_event else 422)
        return
    assert (got.texts, got.calls, got.reasons) == parts
    assert (got.status, got.code) == (200, None)


def _check_told(got: Got, action: str, way: str, kind: str) -> None:
    """Check which action the header and the member report."""
    done = action.partition(" ")[0].rstrip(",").replace("notice", "deliver")
    if way == "live":
        assert (got.member["action"], got.member["would_action"]) == ("deliver", done)
        return
    if action == "block message" and got.code:
        assert "Ask a lawyer." in got.message
    carried = {"hold wait, released": "deliver"}.get(action, done)
    is_live = way == "calls withheld" or (action, way) == ("annotate", "buffered")
    assert got.action == ("deliver" if is_live else carried)  # the header was out before
    if way == "calls withheld" and kind == "text":
        carried = "deliver"
    assert got.code or got.member["action"] == carried
    if action == "annotate":
        assert got.member.get("label") == (None if carried == "deliver" else "unverified")
    if action == "notice":
        assert got.member["notice"] == "Check this."


# Combinations that make no sense


@pytest.mark.parametrize(
    ("lines", "problem"),
    [
        (
            "rules: [{name: r, when: {tools: any}, then: {deliver: {notice: x}}}]",
            "rules[0].then puts a notice behind the text of a reply, and the rule is about tool "
            "calls; annotate them, or hold them",
        ),
        (
            "rules: [{name: r, when: {calls: {at_least: 1}}, then: {deliver: {notice: x}}}]",
            "rules[0].then puts a notice behind the text of a reply, and the rule is about tool "
            "calls; annotate them, or hold them",
        ),
        (
            "rules: [{name: r, when: {n: 1}, then: {hold: {reply: wait, wait: 5m, expires: 1m}}}]",
            "rules[0].then.hold waits for 300s and expires after 60s; wait less",
        ),
        (
            "rules: [{name: r, when: {n: 1}, then: {hold: {reply: error, wait: 5s}}}]",
            "rules[0].then.hold.wait is nothing without reply: wait",
        ),
        (
            "rules: [{name: r, when: {n: 1}, then: {hold: {otherwise: error}}}]",
            "rules[0].then.hold.otherwise follows only on reply: wait or async",
        ),
        (
            "rules: [{name: r, when: {n: 1}, then: {escalate: {to: a, otherwise: "
            "{escalate: {to: b}}}}}]",
            "rules[0].then.escalate.otherwise may not escalate a second time",
        ),
        (
            "rules: [{name: r, when: {n: 1}, then: {clarify: {model: a}}}]",
            "rules[0].then.clarify.model writes nothing without ask: generate",
        ),
        ("on_score_error: clarify", "on_score_error must be deliver, hold or block, not 'clarify'"),
        (
            "on_score_error: {annotate: {label: x}}",
            "on_score_error must be deliver, hold or block, not a mapping",
        ),
    ],
)
def test_what_makes_no_sense_is_refused(tmp_path: Path, lines: str, problem: str) -> None:
    """A combination that could never do what it says is refused, with file and line."""
    path = tmp_path / "p.yaml"
    path.write_text(f"version: 1\nname: p\n{lines}\ndefault: deliver\n")
    with pytest.raises(InvalidDocumentError) as caught:
        load_policy(path)
    assert str(caught.value) == f"{path}:3: {problem}"


def test_the_refused_combinations_are_refused(tmp_path: Path) -> None:
    """Each combination that the matrix leaves out is refused when the policy is loaded."""
    for action, way in REFUSED:
        path = tmp_path / "p.yaml"
        path.write_text(policy(action, way))
        with pytest.raises(InvalidDocumentError):
            load_policy(path)
