"""Actions: the values of `then` and `default`, and their severity."""

from __future__ import annotations

import pytest

from policies import (
    Action,
    Annotate,
    Block,
    Clarify,
    Deliver,
    Escalate,
    Hold,
    InvalidDocumentError,
    parse_policy,
)
from policies.deciding.actions import SEVERITY, changes_reply, severity


def default_action(action: str) -> Action:
    """Parse the YAML of one action, as the default of an otherwise empty policy."""
    return parse_policy(f"version: 1\nname: p\ndefault: {action}\n", "p.yaml").default


@pytest.mark.parametrize(
    ("text", "action"),
    [
        ("deliver", Deliver()),
        ("block", Block()),
        ("{block: {}}", Block()),
        ("{block: {message: 'Not here.'}}", Block("Not here.")),
        ("{deliver: {notice: 'Please check this.'}}", Deliver("Please check this.")),
        ("{annotate: {label: unverified}}", Annotate("unverified")),
        ("clarify", Clarify()),
        ("{clarify: {ask: generate}}", Clarify(ask="generate")),
        (
            "{clarify: {ask: generate, model: m, text: 'Which?'}}",
            Clarify("Which?", "generate", "m"),
        ),
        ("{clarify: {text: 'Which one?'}}", Clarify("Which one?")),
        ("{clarify: {ask: template}}", Clarify()),
        ("hold", Hold("review", None, 7 * 86400.0)),
        ("{hold: }", Hold()),
        ("{hold: {queue: oncall, reply: error, expires: 30m}}", Hold("oncall", "error", 1800.0)),
        ("{hold: {reply: placeholder, expires: 45s}}", Hold("review", "placeholder", 45.0)),
        ("{hold: {reply: refusal}}", Hold(reply="refusal")),
        ("{hold: {expires: 2h}}", Hold(expires_s=7200.0)),
        ("{hold: {expires: 365d}}", Hold(expires_s=365 * 86400.0)),
        ("{hold: {reply: wait}}", Hold(reply="wait", wait_s=30.0)),
        (
            "{hold: {reply: wait, wait: 2m, otherwise: error, on_expiry: deliver}}",
            Hold(reply="wait", wait_s=120.0, otherwise="error", on_expiry="deliver"),
        ),
        (
            "{hold: {reply: async, otherwise: placeholder, on_expiry: block}}",
            Hold(reply="async", otherwise="placeholder", on_expiry="block"),
        ),
        ("{escalate: {human: nurse, expires: 1h}}", Hold("nurse", expires_s=3600.0)),
        ("{escalate: {to: [mid, big]}}", Escalate("mid", further=("big",))),
        ("{escalate: {to: gpt-5.6}}", Escalate("gpt-5.6", "best", None)),
        (
            "{escalate: {to: big, keep: last, otherwise: {hold: {queue: senior}}}}",
            Escalate("big", "last", Hold("senior")),
        ),
        ("{escalate: {to: big, otherwise: block}}", Escalate("big", "best", Block())),
    ],
)
def test_an_action_reads_as_written(text: str, action: Action) -> None:
    """A word gives an action with its defaults; a mapping of one key gives options."""
    assert default_action(text) == action


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        (
            "hodl",
            "default must be deliver, annotate, clarify, escalate, hold, "
            "block or revise, not 'hodl'; "
            "did you mean 'hold'?",
        ),
        ("7", "default must be deliver, annotate, clarify, escalate, hold, block or revise, not 7"),
        (
            "",
            "default must be deliver, annotate, clarify, escalate, hold, block or revise, not null",
        ),
        (
            "[hold]",
            "default must be deliver, annotate, clarify, escalate, hold, "
            "block or revise, not a list",
        ),
        ("{hold: {}, block: {}}", "default must be one action, as in {hold: {queue: review}}"),
        ("{}", "default must be one action, as in {hold: {queue: review}}"),
        (
            "{hold: oncall}",
            "default.hold must be a mapping, not 'oncall'; "
            "valid keys: queue, reply, wait, otherwise, expires, on_expiry, approvals, escalate",
        ),
        ("{hold: {queu: a}}", "unknown key 'queu' in default.hold; did you mean 'queue'?"),
        (
            "{hold: {zzz: a}}",
            "unknown key 'zzz' in default.hold; "
            "valid keys: queue, reply, wait, otherwise, expires, on_expiry, approvals, escalate",
        ),
        ("{hold: {queue: ''}}", "default.hold.queue must be text, not ''"),
        (
            "{hold: {wait: 30s}}",
            "default.hold.wait is nothing without reply: wait",
        ),
        (
            "{hold: {reply: wait, wait: 11m}}",
            "default.hold.wait must be more than 0s and at most 10m, not 11m",
        ),
        (
            "{hold: {reply: error, otherwise: error}}",
            "default.hold.otherwise follows only on reply: wait or async",
        ),
        (
            "{hold: {reply: wait, otherwise: wait}}",
            "default.hold.otherwise must be placeholder, refusal or error, not 'wait'",
        ),
        (
            "{hold: {on_expiry: release}}",
            "default.hold.on_expiry must be reject, deliver or block, not 'release'",
        ),
        (
            "{hold: {reply: eror}}",
            "default.hold.reply must be placeholder, refusal, error, wait or async, not 'eror'; "
            "did you mean 'error'?",
        ),
        (
            "{hold: {expires: 30}}",
            "default.hold.expires must be a duration such as 30s, 30m, 2h or 7d, not 30",
        ),
        (
            "{hold: {expires: 1w}}",
            "default.hold.expires must be a duration such as 30s, 30m, 2h or 7d, not '1w'",
        ),
        (
            "{hold: {expires: 0s}}",
            "default.hold.expires must be more than 0s and at most 365d, not 0s",
        ),
        (
            "{hold: {expires: 366d}}",
            "default.hold.expires must be more than 0s and at most 365d, not 366d",
        ),
        (
            "{clarify: {ask: }}",
            "default.clarify.ask must be template or generate, not null",
        ),
        (
            "{clarify: {model: gpt-5-mini}}",
            "default.clarify.model writes nothing without ask: generate",
        ),
        ("{clarify: {text: 3}}", "default.clarify.text must be text, not 3"),
        (
            "{hold: {approvals: true}}",
            "default.hold.approvals must be a whole number from 1 to 5, not true",
        ),
        (
            "{deliver: {fast: true}}",
            "unknown key 'fast' in default.deliver; valid keys: notice",
        ),
        ("{deliver: {notice: ''}}", "default.deliver.notice must be text, not ''"),
        ("annotate", "default needs a label, as in {annotate: {label: unverified}}"),
        ("{block: now}", "default.block must be a mapping, not 'now'; valid keys: message"),
        (
            "escalate",
            "default needs a model, as in {escalate: {to: gpt-5.6}}, "
            "or a queue of people as `human`",
        ),
        (
            "{escalate: {keep: best}}",
            "default.escalate needs a model, as in {escalate: {to: gpt-5.6}}, "
            "or a queue of people as `human`",
        ),
        (
            "{escalate: {to: [a, b, a]}}",
            "default.escalate.to must be at most 4 models, each of them once",
        ),
        (
            "{escalate: {to: [a, b, c, d, e]}}",
            "default.escalate.to must be at most 4 models, each of them once",
        ),
        ("{escalate: {to: []}}", "default.escalate.to is empty, so it could never hold"),
        (
            "{escalate: {human: nurse, to: big}}",
            "unknown key 'to' in default.escalate; "
            "valid keys: human, reply, wait, otherwise, expires, on_expiry, approvals, escalate",
        ),
        (
            "{escalate: {to: big, keep: worst}}",
            "default.escalate.keep must be best or last, not 'worst'",
        ),
        (
            "{escalate: {to: big, otherwise: {escalate: {to: bigger}}}}",
            "default.escalate.otherwise may not escalate a second time",
        ),
    ],
)
def test_a_wrong_action_is_refused_with_one_sentence(text: str, problem: str) -> None:
    """A wrong action is refused in one sentence with its line and the valid values."""
    with pytest.raises(InvalidDocumentError) as caught:
        default_action(text)
    assert str(caught.value) == f"p.yaml:3: {problem}"


def test_severity_grows_from_deliver_to_block() -> None:
    """Severity grows from deliver to block in the documented order."""
    actions: list[Action] = [
        Deliver(),
        Deliver("with a notice"),
        Annotate("unverified"),
        Clarify(),
        Escalate("big"),
        Hold(),
        Block(),
    ]
    assert [action.name for action in actions] == ["deliver", *SEVERITY]
    assert sorted(actions, key=severity) == actions
    assert len({severity(action) for action in actions}) == len(actions)


def test_an_annotated_reply_is_upstreams() -> None:
    """Only a plain delivery and an annotation leave the reply unchanged."""
    assert not changes_reply(Deliver())
    assert not changes_reply(Annotate("unverified"))
    for action in (Deliver("notice"), Clarify(), Escalate("big"), Hold(), Block()):
        assert changes_reply(action)
