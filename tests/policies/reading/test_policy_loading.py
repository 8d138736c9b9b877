"""Loading: a policy file is read strictly and refused with all its problems."""

from __future__ import annotations

from pathlib import Path
from textwrap import dedent

import pytest
from hypothesis import given
from hypothesis import strategies as st

from policies import (
    Block,
    Deliver,
    Hold,
    InvalidDocumentError,
    Policy,
    load_policy,
    parse_policy,
)
from policies.deciding.rules import slug

MINIMAL = "version: 1\nname: p\ndefault: deliver\n"


def problems_of(text: str) -> list[str]:
    with pytest.raises(InvalidDocumentError) as caught:
        parse_policy(dedent(text), "helpdesk.yaml")
    return [str(problem) for problem in caught.value.problems]


def with_rules(rules: str) -> str:
    return f"{MINIMAL}rules:\n{dedent(rules)}"


def test_the_least_policy_enforces_and_holds_on_score_errors() -> None:
    """Version, name and default are enough; other keys have safe defaults."""
    policy = parse_policy(MINIMAL, "p.yaml")
    assert policy == Policy(1, "p", "enforce", Hold(), (), Deliver(), policy.digest)
    assert policy.is_enforced
    assert not policy.needs_score


@pytest.mark.parametrize(
    ("lines", "action"),
    [
        ("mode: enforce", Hold()),
        ("mode: shadow", Deliver()),
        ("mode: shadow\non_score_error: hold", Hold()),
        ("on_score_error: block", Block()),
        ("on_score_error: {hold: {queue: oncall}}", Hold("oncall")),
        ("on_score_error: deliver", Deliver()),
    ],
)
def test_on_score_error_defaults_by_mode(lines: str, action: object) -> None:
    """`on_score_error` holds in enforce mode and delivers in shadow mode, unless it is set."""
    assert parse_policy(f"{MINIMAL}{lines}\n", "p.yaml").on_score_error == action


@pytest.mark.parametrize("rules", ["rules: []", "rules:", ""])
def test_rules_may_be_empty(rules: str) -> None:
    """Rules may be empty."""
    assert parse_policy(MINIMAL + rules, "p.yaml").rules == ()


def test_all_problems_of_a_file_are_reported_with_their_lines() -> None:
    """All problems of a file are reported with their lines, in order."""
    assert problems_of("""\
        version: 2
        name: Help Desk
        mode: enfroce
        on_score_error: escalate
        defualt: deliver
        rules:
          - name: unsure
            when: {confidence: {blow: 0.5}}
            then: hodl
          - when:
              confidence:
                below: 70
            then: deliver
          - just text
        """) == [
        "helpdesk.yaml:1: missing key 'default' in the policy",
        "helpdesk.yaml:1: version must be 1, not 2",
        "helpdesk.yaml:2: name must be at most 64 of a-z, 0-9 and -, not 'Help Desk'",
        "helpdesk.yaml:3: mode must be enforce or shadow, not 'enfroce'; did you mean 'enforce'?",
        "helpdesk.yaml:4: on_score_error must be deliver, hold or block, not 'escalate'",
        "helpdesk.yaml:5: unknown key 'defualt' in the policy; did you mean 'default'?",
        "helpdesk.yaml:8: unknown key 'blow' in rules[0].when.confidence; did you mean 'below'?",
        "helpdesk.yaml:9: rules[0].then must be deliver, annotate, clarify, escalate, hold, "
        "block or revise, not 'hodl'; did you mean 'hold'?",
        "helpdesk.yaml:10: missing key 'name' in rules[1]",
        "helpdesk.yaml:12: confidence is a probability, 0 to 1; did you mean 0.7?",
        "helpdesk.yaml:14: rules[2] must be a mapping, not 'just text'; "
        "valid keys: name, when, then, shadow",
    ]


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("name: p\ndefault: hold", "1: missing key 'version' in the policy"),
        ("version: 1\ndefault: hold", "1: missing key 'name' in the policy"),
        ("version: 1\nname: p", "1: missing key 'default' in the policy"),
        ("version: 1.0\nname: p\ndefault: hold", "1: version must be 1, not 1.0"),
        ("version: true\nname: p\ndefault: hold", "1: version must be 1, not true"),
        ("version: '1'\nname: p\ndefault: hold", "1: version must be 1, not '1'"),
        ("version: 1\nname: 7\ndefault: hold", "2: name must be text, not 7"),
        (
            "version: 1\nname: p q\ndefault: hold",
            "2: name must be at most 64 of a-z, 0-9 and -, not 'p q'",
        ),
        (
            "- version: 1",
            "1: the policy must be a mapping, not a list; valid keys: version, name, mode, "
            "on_score_error, ask, second_opinion, judge, logprobs, certificate, costs, rules, "
            "default",
        ),
        (MINIMAL + "rules: {a: b}", "4: rules must be a list, not a mapping"),
        (
            MINIMAL + "on_score_error: {clarify: {}}",
            "4: on_score_error must be deliver, hold or block, not a mapping",
        ),
        (with_rules("- {then: hold}"), "5: missing key 'name' in rules[0]"),
        (with_rules("- {name: a}"), "5: missing key 'then' in rules[0]"),
        (with_rules("- {name: 1, then: hold}"), "5: rules[0].name must be text, not 1"),
        (
            with_rules(f"- {{name: {'a' * 65}, then: hold}}"),
            "5: rules[0].name must be at most 64 characters long",
        ),
        (
            with_rules("- {name: '?!', then: hold}"),
            "5: rules[0].name must contain a letter or digit, not '?!'",
        ),
        (
            with_rules("- {name: Default, then: hold}"),
            "5: rules[0].name cannot be 'Default', the word for a decision without a rule",
        ),
        (
            with_rules("- {name: on_score_error, then: hold}"),
            "5: rules[0].name cannot be 'on_score_error', the word for a decision without a rule",
        ),
        (
            with_rules("""\
                - {name: a b, when: {n: 1}, then: hold}
                - {name: a b, then: hold}
                """),
            "6: duplicate rule name 'a b'",
        ),
        (
            with_rules("""\
                - {name: a b, when: {n: 1}, then: hold}
                - {name: A-B, then: hold}
                """),
            "6: rule name 'A-B' is 'a-b' in headers, as is 'a b'",
        ),
        (
            with_rules("""\
                - {name: all, when: {}, then: hold}
                - {name: more, when: {n: 1}, then: hold}
                """),
            "6: rules[1] can never match: rule 'all' has no conditions",
        ),
    ],
)
def test_a_wrong_policy_is_refused_with_one_sentence(text: str, problem: str) -> None:
    """A wrong policy is refused in one sentence with its line and the valid values."""
    assert problems_of(text) == [f"helpdesk.yaml:{problem}"]


def test_every_rule_behind_a_catch_all_is_unreachable() -> None:
    """Every rule after one without conditions is refused."""
    last = with_rules("""\
        - {name: some, when: {n: 1}, then: hold}
        - {name: all, then: hold}
        """)
    assert len(parse_policy(last, "p.yaml").rules) == 2
    assert len(problems_of(last + "- {name: x, then: hold}\n- {name: y, then: hold}\n")) == 2


def test_a_misspelt_when_is_not_taken_for_a_catch_all() -> None:
    """A misspelt `when` is reported, and the rules after it are not called unreachable."""
    assert problems_of(
        with_rules("""\
            - {name: a, whn: {n: 1}, then: hold}
            - {name: b, then: hold}
            """)
    ) == ["helpdesk.yaml:5: unknown key 'whn' in rules[0]; did you mean 'when'?"]


def test_what_follows_from_a_wrong_value_is_not_reported() -> None:
    """A wrong value is reported once, without the errors that follow from it."""
    when = "when: {confidence: {at_least: 0.9, below: 70}, length: {at_least: 9, below: x}}"
    assert problems_of(with_rules(f"- {{name: a, {when}, then: hold}}")) == [
        "helpdesk.yaml:5: confidence is a probability, 0 to 1; did you mean 0.7?",
        "helpdesk.yaml:5: rules[0].when.length.below must be a whole number from 0, not 'x'",
    ]


def test_the_digest_follows_the_meaning_of_the_file() -> None:
    """The digest depends on the values, not on comments, layout or the order of keys."""
    digest = parse_policy(MINIMAL, "p.yaml").digest
    assert len(digest) == 8
    assert int(digest, 16) >= 0
    same = parse_policy("# hi\n{default: deliver, 'name': p, version: 1}", "other.yaml")
    assert same.digest == digest
    assert parse_policy(MINIMAL.replace("deliver", "hold"), "p.yaml").digest != digest


def test_a_policy_is_immutable() -> None:
    """A policy cannot be changed, and equal policies have equal hashes."""
    policy = parse_policy(MINIMAL, "p.yaml")
    with pytest.raises(AttributeError):
        policy.mode = "shadow"  # type: ignore[misc]
    assert hash(policy) == hash(parse_policy(MINIMAL, "p.yaml"))


def test_a_policy_is_loaded_from_a_path(tmp_path: Path) -> None:
    """A policy is loaded from a Path or from a string that looks like a path."""
    path = tmp_path / "mine.yaml"
    path.write_text(MINIMAL)
    assert load_policy(path) == load_policy(str(path)) == parse_policy(MINIMAL, "p.yaml")


def test_an_unknown_pack_names_the_nearest_and_lists_all() -> None:
    """An unknown pack is refused with the nearest name and all names."""
    with pytest.raises(InvalidDocumentError) as caught:
        load_policy("helpdsk")
    assert str(caught.value) == (
        "helpdsk: there is no pack of this name; did you mean 'helpdesk'? "
        "(packs: agent-tools, best-of-n, cascade, coding-agent, "
        "doubtful-calls, finance, healthcare, helpdesk, observe, "
        "rag, second-opinion, second-opinion-facts)"
    )
    with pytest.raises(InvalidDocumentError, match=r"no pack of this name \(packs: agent-tools"):
        load_policy("zzz")


def test_a_missing_file_is_a_problem_too() -> None:
    """A missing file is refused with InvalidDocumentError."""
    with pytest.raises(InvalidDocumentError, match=r"^none\.yaml: there is no such file$"):
        load_policy("none.yaml")


@pytest.mark.parametrize(
    ("name", "label"),
    [
        ("surely right", "surely-right"),
        ("Überprüfung nötig!", "uberprufung-notig"),
        ("a_b  (c)", "a_b-c"),
        ("確認", "u78ba-u8a8d"),
    ],
)
def test_a_rule_name_becomes_a_slug(name: str, label: str) -> None:
    """A rule's name in any language becomes a distinct label."""
    assert slug(name) == label


@given(st.text())
def test_a_slug_is_safe_in_a_header(name: str) -> None:
    """A label has only a-z, 0-9, `_` and inner dashes."""
    label = slug(name)
    assert set(label) <= set("abcdefghijklmnopqrstuvwxyz0123456789_-")
    assert not label.startswith("-")
    assert not label.endswith("-")


junk = st.recursive(
    st.sampled_from(["hold", "deliver", "70", "0.5", "true", "~", "x", "''", "'*'"]),
    lambda inner: (
        st.lists(inner, max_size=3).map(lambda items: f"[{', '.join(items)}]")
        | st.dictionaries(
            st.sampled_from(
                ["below", "between", "hold", "escalate", "to", "n", "at_least", "tools"]
            ),
            inner,
            max_size=3,
        ).map(
            lambda pairs: "{" + ", ".join(f"{key}: {value}" for key, value in pairs.items()) + "}"
        )
    ),
    max_leaves=6,
)


@given(st.fixed_dictionaries({}, optional=dict.fromkeys(("version", "name", "rules"), junk)), junk)
def test_any_document_gives_a_policy_or_one_kind_of_error(keys: dict[str, str], when: str) -> None:
    """Any values give a policy or problems with lines."""
    fixed = {"version": "1", "name": "p", "default": when} | keys
    fixed.setdefault("rules", f"[{{name: a, when: {when}, then: {when}}}]")
    text = "".join(f"{key}: {value}\n" for key, value in fixed.items())
    try:
        policy = parse_policy(text, "p.yaml")
    except InvalidDocumentError as error:
        problems = error.problems
    else:
        problems = ()
        assert isinstance(policy, Policy)
    assert all(problem.line > 0 for problem in problems)
