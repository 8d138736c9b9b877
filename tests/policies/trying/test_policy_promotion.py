"""Promoting a policy or rule changes one word of its file."""

from __future__ import annotations

import pytest

from policies import InvalidDocumentError, parse_policy, promote

POLICY = """\
version: 1
name: desk
mode: shadow        # until March
rules:
  # what nobody should see
  - name: strict
    when: {confidence: {below: 0.6}}
    then: block
    shadow: true    # counts first
  - {name: a, when: {n: 1}, then: hold, shadow: true}
  - {name: b, when: {n: 2}, then: hold, "shadow" : true, }
default: deliver    # shadow: true
"""


@pytest.mark.parametrize(
    ("rule", "old", "new"),
    [
        (None, "mode: shadow ", "mode: enforce "),
        ("strict", "    shadow: true    # counts", "    shadow: false    # counts"),
        ("a", "then: hold, shadow: true}", "then: hold, shadow: false}"),
        ("b", '"shadow" : true, }', '"shadow" : false, }'),
    ],
)
@pytest.mark.parametrize("line_end", ["\n", "\r\n"])
def test_one_word_changes(rule: str | None, old: str, new: str, line_end: str) -> None:
    """One word changes; comments, layout and line ends do not."""
    text = POLICY.replace("\n", line_end)
    assert promote(text, "desk.yaml", rule) == text.replace(old, new)


def test_of_several_rules_on_a_line_the_right_one_is_promoted() -> None:
    """Of several rules on a line the named one is promoted."""
    one = "{name: a, when: {n: 1}, then: hold, shadow: true}"
    two = one.replace("name: a", "name: b").replace("n: 1", "n: 2")
    text = f"version: 1\nname: p\nrules: [{one}, {two}]\ndefault: deliver\n"
    assert promote(text, "p.yaml", "b") == text.replace(two, two.replace("true", "false"))


def test_a_rule_named_like_the_key_confuses_nobody() -> None:
    """Text that looks like the key is not changed."""
    text = (
        "version: 1\nname: p\nrules:\n"
        '  - {name: "shadow: true", when: {n: 1}, then: hold, shadow: true}\ndefault: deliver\n'
    )
    after = parse_policy(promote(text, "p.yaml", "shadow: true"), "p.yaml")
    assert [(rule.name, rule.is_shadow) for rule in after.rules] == [("shadow: true", False)]


@pytest.mark.parametrize(
    ("rule", "text", "problem"),
    [
        ("strct", POLICY, "policy desk has no rule 'strct'; did you mean 'strict'?"),
        (
            "strict",
            POLICY.replace("shadow: true    #", "shadow: false   #"),
            "rule 'strict' of policy desk is not in shadow",
        ),
        (None, POLICY.replace("mode: shadow", "mode: enforce"), "policy desk is enforced already"),
        (
            "a",
            POLICY.replace("hold, shadow: true", "hold, shadow:\n     true"),
            "change it by hand",
        ),
    ],
)
def test_what_cannot_be_promoted_is_one_sentence(rule: str | None, text: str, problem: str) -> None:
    """An impossible promotion is refused in one sentence."""
    with pytest.raises(ValueError, match=problem.replace("?", r"\?")):
        promote(text, "desk.yaml", rule)


def test_a_promotion_that_makes_no_policy_is_refused() -> None:
    """A promotion that makes the policy invalid is refused."""
    rules = "[{name: all, then: hold, shadow: true}, {name: b, when: {n: 1}, then: block}]"
    with pytest.raises(InvalidDocumentError, match="can never match"):
        promote(f"version: 1\nname: p\nrules: {rules}\ndefault: deliver\n", "p.yaml", "all")
