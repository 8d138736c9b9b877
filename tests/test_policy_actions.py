"""Actions: what `then` and `default` may say, and how severe each is."""

from __future__ import annotations

import pytest

from policies import (
    Action,
    Block,
    Clarify,
    Deliver,
    Escalate,
    Hold,
    InvalidDocumentError,
    parse_policy,
)
from policies.actions import SEVERITY, severity


def default_action(action: str) -> Action:
    """Parse the YAML of one action, as the default of an otherwise empty policy."""
    return parse_policy(f"version: 1\nname: p\ndefault: {action}\n", "p.yaml").default


@pytest.mark.parametrize(
    ("text", "action"),
    [
        ("deliver", Deliver()),
        ("block", Block()),
        ("{block: {}}", Block()),
        ("clarify", Clarify()),
        ("{clarify: {text: 'Which one?'}}", Clarify("Which one?")),
        ("{clarify: {ask: template}}", Clarify()),
        ("hold", Hold("review", None, 7 * 86400.0)),
        ("{hold: }", Hold()),
        ("{hold: {queue: oncall, reply: error, expires: 30m}}", Hold("oncall", "error", 1800.0)),
        ("{hold: {reply: placeholder, expires: 45s}}", Hold("review", "placeholder", 45.0)),
        ("{hold: {expires: 2h}}", Hold(expires_s=7200.0)),
        ("{hold: {expires: 365d}}", Hold(expires_s=365 * 86400.0)),
        ("{escalate: {to: gpt-5.6}}", Escalate("gpt-5.6", "best", None)),
        (
            "{escalate: {to: big, keep: last, otherwise: {hold: {queue: senior}}}}",
            Escalate("big", "last", Hold("senior")),
        ),
        ("{escalate: {to: big, otherwise: block}}", Escalate("big", "best", Block())),
    ],
)
def test_an_action_reads_as_written(text: str, action: Action) -> None:
    """A word alone takes the defaults; a mapping of one key takes options."""
    assert default_action(text) == action


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        (
            "hodl",
            "default must be deliver, clarify, escalate, hold or block, not 'hodl'; "
            "did you mean 'hold'?",
        ),
        ("7", "default must be deliver, clarify, escalate, hold or block, not 7"),
        ("", "default must be deliver, clarify, escalate, hold or block, not null"),
        ("[hold]", "default must be deliver, clarify, escalate, hold or block, not a list"),
        ("{hold: {}, block: {}}", "default must be one action, as in {hold: {queue: review}}"),
        ("{}", "default must be one action, as in {hold: {queue: review}}"),
        (
            "{hold: oncall}",
            "default.hold must be a mapping, not 'oncall'; valid keys: queue, reply, expires",
        ),
        ("{hold: {queu: a}}", "unknown key 'queu' in default.hold; did you mean 'queue'?"),
        (
            "{hold: {zzz: a}}",
            "unknown key 'zzz' in default.hold; valid keys: queue, reply, expires",
        ),
        ("{hold: {queue: ''}}", "default.hold.queue must be text, not ''"),
        (
            "{hold: {reply: wait}}",
            "default.hold.reply: this version knows placeholder and error, not 'wait'",
        ),
        (
            "{hold: {reply: async}}",
            "default.hold.reply: this version knows placeholder and error, not 'async'",
        ),
        (
            "{hold: {reply: eror}}",
            "default.hold.reply must be placeholder or error, not 'eror'; did you mean 'error'?",
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
            "{clarify: {ask: generate}}",
            "default.clarify.ask: this version only knows 'template', not 'generate'",
        ),
        (
            "{clarify: {ask: }}",
            "default.clarify.ask: this version only knows 'template', not null",
        ),
        ("{clarify: {text: 3}}", "default.clarify.text must be text, not 3"),
        ("{deliver: {fast: true}}", "default.deliver takes no options"),
        ("{block: now}", "default.block takes no options"),
        ("escalate", "default needs a model, as in {escalate: {to: gpt-5.6}}"),
        (
            "{escalate: {keep: best}}",
            "default.escalate needs a model, as in {escalate: {to: gpt-5.6}}",
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
    """The sentence names the place and what may stand there."""
    with pytest.raises(InvalidDocumentError) as caught:
        default_action(text)
    assert str(caught.value) == f"p.yaml:3: {problem}"


def test_severity_grows_from_deliver_to_block() -> None:
    """The order that settles a disagreement between choices is the documented one."""
    actions: list[Action] = [Deliver(), Clarify(), Escalate("big"), Hold(), Block()]
    assert [action.name for action in actions] == list(SEVERITY)
    assert sorted(actions, key=severity) == actions
