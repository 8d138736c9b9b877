"""Streams: buffered if the policy may do anything but deliver, live otherwise."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from policies import (
    Facts,
    Policy,
    StreamMode,
    ToolCall,
    decide,
    parse_policy,
    stream_mode,
    stream_report,
)

LIVE = StreamMode("passthrough")


def policy_with(*rules: str, default: str = "deliver", options: str = "") -> Policy:
    lines = "".join(f"  - {rule}\n" for rule in rules)
    return parse_policy(
        f"version: 1\nname: p\n{options}\nrules:\n{lines}default: {default}\n", "p.yaml"
    )


HOLD_CLAUDE = "{name: claude tools, when: {model: ['claude-*', 'sonnet*'], tools: any}, then: hold}"
FREE_GPT = "{name: free, when: {model: 'gpt-*'}, then: deliver}"
SURE = "{name: sure, when: {confidence: {at_least: 0.9}}, then: deliver}"


@pytest.mark.parametrize(
    ("policy", "expected", "report"),
    [
        (policy_with(), LIVE, ["all streams pass through by default"]),
        (
            policy_with(default="hold"),
            StreamMode("buffer", "default"),
            ["all streams are buffered by default"],
        ),
        (
            policy_with(default="hold", options="mode: shadow"),
            LIVE,
            ["all streams pass through, as the policy is in shadow mode"],
        ),
        (
            policy_with(HOLD_CLAUDE),
            LIVE,
            [
                "tool calls in streams of claude-* or sonnet* wait for their score "
                "by rule 'claude tools'",
                "everything else in all streams passes through by default",
            ],
        ),
        (
            policy_with(HOLD_CLAUDE, FREE_GPT, default="block"),
            LIVE,
            [
                "tool calls in streams of claude-* or sonnet* wait for their score "
                "by rule 'claude tools'",
                "everything else in streams of gpt-* passes through by rule 'free'",
                "all other streams are buffered by default",
            ],
        ),
        (
            policy_with("{name: unsure, when: {confidence: {below: 0.2}}, then: clarify}"),
            StreamMode("buffer", "unsure"),
            ["all streams are buffered by rule 'unsure'"],
        ),
        (
            policy_with(SURE),
            StreamMode("buffer", "on_score_error"),
            ["all streams are buffered by on_score_error"],
        ),
        (
            policy_with(SURE, options="on_score_error: deliver"),
            LIVE,
            ["all streams pass through by default"],
        ),
        (
            policy_with("{name: whole, when: {stream: false}, then: hold}"),
            LIVE,
            ["all streams pass through by default"],
        ),
        (
            policy_with("{name: live, when: {stream: true}, then: deliver}", default="hold"),
            LIVE,
            ["all streams pass through by rule 'live'"],
        ),
        (
            policy_with(
                "{name: law, when: {domain: 'law*', tags: [b, a]}, then: hold}",
                "{name: vip, when: {tags: vip}, then: hold}",
            ),
            LIVE,
            [
                "streams in domain law* tagged a or b are buffered by rule 'law'",
                "streams tagged vip are buffered by rule 'vip'",
                "all other streams pass through by default",
            ],
        ),
        (
            policy_with("{name: many, when: {n: 2}, then: deliver}", default="hold"),
            StreamMode("buffer", "default"),
            ["all streams are buffered by default"],
        ),
    ],
)
def test_a_stream_waits_where_a_rule_could_still_act(
    policy: Policy, expected: StreamMode, report: list[str]
) -> None:
    """A stream waits only if a rule could still act, and the report of `check` agrees."""
    assert stream_mode(policy, model="gpt-5.6") == expected
    assert stream_report(policy) == report


def test_the_mode_follows_model_domain_and_tags() -> None:
    """A rule that the request's model, domain or tags exclude makes no stream wait."""
    policy = policy_with(
        "{name: one, when: {model: 'a*', domain: law, tags: [x]}, then: hold}",
    )
    tags = frozenset({"x", "y"})
    assert stream_mode(policy, model="abc", domain="law", tags=tags).rule == "one"
    assert stream_mode(policy, model="b", domain="law", tags=tags) == LIVE
    assert stream_mode(policy, model="abc", domain="tax", tags=tags) == LIVE
    assert stream_mode(policy, model="abc", tags=tags) == LIVE
    assert stream_mode(policy, model="abc", domain="law") == LIVE


@pytest.mark.parametrize(
    ("policy", "expected", "report"),
    [
        (
            policy_with(options="ask: {n: 3}"),
            StreamMode("buffer", "ask"),
            ["all streams are buffered by ask"],
        ),
        (
            policy_with(options="ask: {n: 3, when: {model: kimi}}"),
            LIVE,
            ["streams of kimi are buffered by ask", "all streams pass through by default"],
        ),
        (
            policy_with(options="mode: shadow\nask: {n: 3}"),
            StreamMode("passthrough"),
            ["all streams pass through, as the policy is in shadow mode"],
        ),
        (
            policy_with("{name: tried, when: {n: 1}, then: block, shadow: true}"),
            LIVE,
            ["all streams pass through by default"],
        ),
        (
            policy_with("{name: told, when: {n: 1}, then: {annotate: {label: x}}}"),
            LIVE,
            ["all streams pass through by default"],
        ),
        (
            policy_with("{name: seen, when: {n: 1}, then: {deliver: {notice: x}}}"),
            StreamMode("buffer", "seen"),
            ["all streams are buffered by rule 'seen'"],
        ),
        (
            policy_with("{name: law, when: {team: law, key: 'k*'}, then: block}"),
            LIVE,
            [
                "streams of team law with key k* are buffered by rule 'law'",
                "all other streams pass through by default",
            ],
        ),
    ],
)
def test_streams_wait_for_what_can_change_them(
    policy: Policy, expected: StreamMode, report: list[str]
) -> None:
    """Asking several times and notices buffer streams; annotations and rules in shadow do not."""
    assert stream_mode(policy, model="gpt-5.6") == expected
    assert stream_report(policy) == report


def test_team_and_key_are_known_before_there_is_a_reply() -> None:
    """A rule on team and key buffers only their streams."""
    policy = policy_with("{name: law, when: {team: law, key: 'k*'}, then: block}")
    assert stream_mode(policy, model="m", team="law", key="k1").mode == "buffer"
    assert stream_mode(policy, model="m", team="law", key="ci") == LIVE
    assert stream_mode(policy, model="m", key="k1") == LIVE


def test_only_the_first_rule_for_a_scope_is_reported() -> None:
    """The report has only the first rule for a scope."""
    policy = policy_with(HOLD_CLAUDE, HOLD_CLAUDE.replace("claude tools", "again"))
    assert len(stream_report(policy)) == 2


conditions = st.lists(
    st.sampled_from(
        [
            "model: 'a*'",
            "domain: law",
            "tags: [x]",
            "stream: true",
            "stream: false",
            "tools: any",
            "finish_reason: stop",
            "confidence: {below: 0.5}",
            "confidence: {at_least: 0.5}",
        ]
    ),
    min_size=1,
    max_size=3,
    unique_by=lambda condition: condition.split(":")[0],
).map(", ".join)
actions = st.sampled_from(["deliver", "hold", "clarify", "block", "{escalate: {to: big}}"])
policies = st.builds(
    lambda rules, default, on_score_error: policy_with(
        *(
            f"{{name: r{index}, when: {{{when}}}, then: {then}}}"
            for index, (when, then) in enumerate(rules)
        ),
        default=default,
        options=f"on_score_error: {on_score_error}",
    ),
    st.lists(st.tuples(conditions, actions), max_size=4),
    actions,
    st.sampled_from(["deliver", "hold"]),
)
streams = st.builds(
    Facts,
    confidence=st.none() | st.sampled_from([0.1, 0.9]),
    model=st.sampled_from(["a1", "b1"]),
    tools=st.sampled_from([(), (ToolCall("t"),)]),
    stream=st.just(True),
    finish_reason=st.sampled_from(["stop", "length"]),
    domain=st.sampled_from([None, "law"]),
    tags=st.sampled_from([frozenset(), frozenset({"x"})]),
)


@given(policies, streams)
def test_a_live_stream_is_always_delivered(policy: Policy, facts: Facts) -> None:
    """A live stream is always delivered, and so is its text while its tool calls wait."""
    mode = stream_mode(policy, model=facts.model, domain=facts.domain, tags=facts.tags)
    if mode.mode == "passthrough" or (mode.mode == "buffer_tools" and not facts.tools):
        assert decide(policy, facts).applied.name == "deliver"
    assert (mode.rule is None) == (mode.mode == "passthrough")
