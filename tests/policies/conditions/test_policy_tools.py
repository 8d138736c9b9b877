"""Tool calls: which ones a rule matches, and how several in one reply are judged."""

from __future__ import annotations

import json
import time

import pytest

from policies import (
    Facts,
    InvalidDocumentError,
    OfferedTools,
    Policy,
    ToolCall,
    decide,
    decide_calls,
    lint,
    load_policy,
    parse_policy,
)
from policies.conditions.tool_words import words_in


def policy_with(tools: str, then: str = "hold", default: str = "deliver") -> Policy:
    """Return a policy of one rule on tools, on line 4."""
    return parse_policy(
        f"version: 1\nname: p\nrules:\n- {{name: r, when: {{tools: {tools}}}, then: {then}}}\n"
        f"default: {default}",
        "p.yaml",
    )


def matches(tools: str, *calls: ToolCall, then: str = "hold", default: str = "deliver") -> bool:
    return decide(policy_with(tools, then, default), Facts(0.5, "m", tools=calls)).rule == "r"


PAY = ToolCall(
    "payments.send",
    """{"amount": 120.5, "currency": "EUR", "urgent": true, "memo": null,
        "to": [{"email": "a@ours.com"}, {"email": "b@theirs.com"}],
        "query": {"sql": ["select 1", "DROP TABLE users"]}, "lines": [3, 40], "spelled": "250"}""",
)


@pytest.mark.parametrize(
    ("arguments", "is_matched"),
    [
        ("{amount: {above: 100}}", True),
        ("{amount: {above: 120.5}}", False),
        ("{amount: {at_least: 120.5}}", True),
        ("{amount: {below: 120.5}}", False),
        ("{amount: {at_most: 120.5}}", True),
        ("{amount: {above: 100, below: 110}}", False),
        ("{amount: 120.5}", True),
        ("{amount: 120}", False),
        ("{spelled: {above: 200}}", True),
        ("{currency: EUR}", True),
        ("{currency: [USD, E*]}", True),
        ("{currency: eur}", False),
        ("{currency: {not: EUR}}", False),
        ("{currency: {not: [USD, GBP]}}", True),
        ("{urgent: true}", True),
        ("{urgent: false}", False),
        ("{memo: ~}", True),
        ("{to.email: '*@theirs.com'}", True),
        ("{to.email: {not: '*@ours.com'}}", True),
        ("{to.email: {not: '*.com'}}", False),
        ("{to.name: '*'}", False),
        ("{query: '*DROP TABLE*'}", True),
        ("{'*': '*DROP TABLE*'}", True),
        ("{'*': '*TRUNCATE*'}", False),
        ("{lines: {above: 30}}", True),
        ("{lines: {above: 5, below: 35}}", False),
        ("{memo: {present: true}}", True),
        ("{memo: {present: false}}", False),
        ("{note: {present: false}}", True),
        ("{note: {present: true}}", False),
        ("{note: '*'}", False),
        ("{amount: {above: 100}, currency: USD}", False),
        ("{amount: {above: 100}, currency: EUR}", True),
    ],
)
def test_arguments_have_to_match_all_patterns(arguments: str, is_matched: bool) -> None:
    """All patterns of a rule have to match; one matching value at each path is enough."""
    assert matches(f"[{{name: 'payments.*', arguments: {arguments}}}]", PAY) is is_matched
    assert not matches(f"[{{name: 'mail.*', arguments: {arguments}}}]", PAY)


@pytest.mark.parametrize(
    "arguments",
    [
        "not JSON",
        '{"amount": 1, "amount": 1000}',
        '{"amount": NaN}',
        '{"amount": 1' + "0" * 5_000 + "}",
        "[" * 5_000,
        '{"amount": "a lot"}',
        '{"amount": true}',
        '"{\\"amount\\": 900}"',
        '"text"',
        "[]",
        "null",
        "7",
    ],
)
def test_arguments_that_cannot_be_read_are_never_waved_through(arguments: str) -> None:
    """Arguments that cannot be read match every rule that restrains and none that delivers."""
    call = ToolCall("pay", arguments)
    pattern = "[{name: pay, arguments: {amount: {below: 5}}}]"
    for then in ("hold", "block", "clarify"):
        assert matches(pattern, call, then=then)
    for then in ("deliver", "{annotate: {label: small}}"):
        assert not matches(pattern, call, then=then, default="hold")


@pytest.mark.parametrize("word", ["yes", "Yes", "on", "y", "true", "True"])
@pytest.mark.parametrize("value", ["true", '"true"', '"yes"', '"TRUE"', '"on"', "1", '"1"'])
def test_words_for_true_are_true(word: str, value: str) -> None:
    """A rule that restrains matches a boolean in each of its spellings."""
    pattern = f"[{{name: deploy, arguments: {{force: {word}}}}}]"
    assert matches(pattern, ToolCall("deploy", f'{{"force": {value}}}'))
    assert not matches(pattern, ToolCall("deploy", '{"force": false}'))
    assert not matches(pattern, ToolCall("deploy", '{"force": null}'))
    assert not matches(pattern, ToolCall("deploy", '{"force": "no"}'))


@pytest.mark.parametrize("value", ['"true"', '"Yes"', '"on"', "1", '"1"'])
def test_another_word_for_true_delivers_nothing(value: str) -> None:
    """A rule that delivers matches only the same word or the boolean."""
    for condition in ("yes", "{not: no}"):
        pattern = f"[{{name: deploy, arguments: {{confirmed: {condition}}}}}]"
        call = ToolCall("deploy", f'{{"confirmed": {value}}}')
        is_no_word_for_false = condition == "{not: no}"
        found = matches(pattern, call, then="deliver", default="hold")
        assert found is is_no_word_for_false


@pytest.mark.parametrize("value", ['"false"', '"no"', "0", '"maybe"', "{}", "null"])
def test_no_other_value_passes_for_a_boolean_where_it_delivers(value: str) -> None:
    """A rule that delivers takes only a boolean for false: a tool may read other values as true."""
    pattern = "[{name: deploy, arguments: {force: false}}]"
    call = ToolCall("deploy", f'{{"force": {value}}}')
    assert not matches(pattern, call, then="deliver", default="hold")


def test_a_negated_word_for_true_excludes_true() -> None:
    """`not: yes` excludes the boolean true, in a rule that delivers too."""
    pattern = "[{name: deploy, arguments: {force: {not: yes}}}]"
    forced = ToolCall("deploy", '{"force": true}')
    assert not matches(pattern, forced, then="deliver", default="hold")
    assert matches(pattern, ToolCall("deploy", '{"force": false}'), then="deliver", default="hold")


@pytest.mark.parametrize(
    ("name", "offered", "is_held"),
    [
        ("send", ["send"], True),
        ("functions.send", ["send"], True),
        ("functions.send", ["functions.send", "send"], False),
        ("mail.send", ["send"], True),
        ("mail.send", ["mail.send", "send"], False),
        ("resend", ["send"], False),
        ("send_later", ["send"], False),
        ("SEND", ["send"], True),
        ("sendsend", ["send"], True),
        ("functions.send", [], True),
        ("mail.send", [], False),
        ("", ["send"], True),
        ("x." * 300 + "send", ["send"], True),
        ("send" + ".x" * 300, ["send"], True),
        ("send" * 10_000, ["send"], True),
    ],
)
def test_a_name_is_read_as_the_tools_that_it_may_mean(
    name: str, offered: list[str], is_held: bool
) -> None:
    """A name with several readings is held if any is matched, and delivered only if all are."""
    call = ToolCall(name, '{"to": "x"}', OfferedTools(offered).readings(name))
    assert matches("[send]", call) is is_held
    if is_held and name not in ("send", ""):
        assert not matches(f"['{name[:40]}*', look]", call, then="deliver", default="hold")


def test_a_call_without_arguments_has_none() -> None:
    """A call with empty arguments has none, as some models write nothing for an empty object."""
    pattern = "[{name: pay, arguments: {amount: {above: 0}}}]"
    assert not matches(pattern, ToolCall("pay", ""))
    assert not matches(pattern, ToolCall("pay"))
    assert matches("[{name: pay, arguments: {amount: {present: false}}}]", ToolCall("pay", " "))


@pytest.mark.parametrize(
    "email", ['{"email": "x@theirs.com"}', ' [{"email": "x@theirs.com"}]', "{"]
)
def test_an_object_that_is_written_as_text_is_looked_into(email: str) -> None:
    """Patterns look into an object that is written as text; text that cannot be read is held."""
    call = ToolCall("pay", json.dumps({"to": email}))
    assert matches("[{name: pay, arguments: {to.email: '*@theirs.com'}}]", call)


def test_deeply_nested_arguments_are_searched() -> None:
    """Arguments nested 300 deep are searched."""
    deep = '{"a": ' * 300 + '"needle"' + "}" * 300
    assert matches("[{name: t, arguments: {'*': need*}}]", ToolCall("t", deep))


def test_patterns_that_would_blow_up_elsewhere_take_no_time() -> None:
    """Many stars over a long text that almost matches are decided within a second."""
    call = ToolCall("t", f'{{"text": "{"a" * 50_000}"}}')
    pattern = "[{name: t, arguments: {text: '*a*a*a*a*a*a*a*a*a*b'}}]"
    started = time.process_time()
    assert not matches(pattern, call)
    assert time.process_time() - started < 1.0


LADDER = """
version: 1
name: p
rules:
  - {name: reads, when: {tools: ["read_*"]}, then: deliver}
  - {name: deletes, when: {tools: ["delete_*"], confidence: {below: 0.9}}, then: hold}
  - {name: crowd, when: {calls: {at_least: 4}}, then: block}
default: clarify
"""


@pytest.mark.parametrize(
    ("calls", "rule", "alone"),
    [
        (["read_file"], "reads", ["deliver"]),
        (["read_file", "read_mail"], "reads", ["deliver", "deliver"]),
        (["read_file", "delete_all"], "deletes", ["deliver", "hold"]),
        (["read_file", "other"], "default", ["deliver", "clarify"]),
        (["other", "delete_all", "read_file"], "deletes", ["clarify", "hold", "deliver"]),
        (["other"] * 4, "crowd", ["block"] * 4),
    ],
)
def test_parallel_calls_are_judged_each_and_together(
    calls: list[str], rule: str, alone: list[str]
) -> None:
    """Parallel calls are judged each and together; a harmless call delivers no other."""
    policy = parse_policy(LADDER, "p.yaml")
    facts = Facts(0.5, "m", tools=tuple(map(ToolCall, calls)))
    assert decide(policy, facts).rule == rule
    assert [each.action.name for each in decide_calls(policy, facts)] == alone


@pytest.mark.parametrize(
    ("tools", "problem"),
    [
        ("[{arguments: {a: 1}}]", "rules[0].when.tools[0] needs name, words, marked or risk"),
        (
            "[{name: t, argument: {a: 1}}]",
            "unknown key 'argument' in rules[0].when.tools[0]; did you mean 'arguments'?",
        ),
        (
            "[{name: t, arguments: {}}]",
            "rules[0].when.tools[0].arguments is empty, so it could never hold",
        ),
        (
            "[{name: [], arguments: {a: 1}}]",
            "rules[0].when.tools[0].name is empty, so it could never hold",
        ),
        (
            "[{name: t, arguments: {a: {over: 1}}}]",
            "unknown key 'over' in rules[0].when.tools[0].arguments.a; did you mean 'above'?",
        ),
        (
            "[{name: t, arguments: {a: {}}}]",
            "rules[0].when.tools[0].arguments.a needs above, at_least, below, at_most, not, "
            "present, words, commands or paths",
        ),
        (
            "[{name: t, arguments: {a: {above: x}}}]",
            "rules[0].when.tools[0].arguments.a.above must be a number, not 'x'",
        ),
        (
            "[{name: t, arguments: {a: {above: 1, at_least: 2}}}]",
            "rules[0].when.tools[0].arguments.a.at_least stands beside above; one of them is "
            "enough",
        ),
        (
            "[{name: t, arguments: {a: {above: 2, below: 2}}}]",
            "rules[0].when.tools[0].arguments.a can never hold: no number is that",
        ),
        (
            "[{name: t, arguments: {a: {present: maybe}}}]",
            "rules[0].when.tools[0].arguments.a.present must be true or false, not 'maybe'",
        ),
        (
            "[{name: t, arguments: []}]",
            "rules[0].when.tools[0].arguments is empty, so it could never hold",
        ),
        (
            "[{words: [delete_user]}]",
            "rules[0].when.tools[0].words has single words in lower case, not 'delete_user'",
        ),
        (
            "[{words: [order], without: [get, order]}]",
            "rules[0].when.tools[0].without takes away 'order', which words asks for",
        ),
        (
            "[{name: t, without: [get]}]",
            "rules[0].when.tools[0].without stands beside words, which it narrows",
        ),
        (
            "[{name: t, arguments: {a: {words: [rm; ls]}}}]",
            "rules[0].when.tools[0].arguments.a.words could never find 'rm; ls': words of one "
            "command, or options",
        ),
        (
            "[{name: t, arguments: {a: {present: false, words: [rm]}}}]",
            "rules[0].when.tools[0].arguments.a.present stands alone: what is not there has no "
            "value",
        ),
        (
            "[{name: t, arguments: {a: {present: false, above: 2}}}]",
            "rules[0].when.tools[0].arguments.a.present stands alone: what is not there has no "
            "value",
        ),
    ],
)
def test_a_wrong_pattern_is_refused_with_one_sentence(tools: str, problem: str) -> None:
    """A wrong pattern is refused in one sentence with its line and the valid values."""
    with pytest.raises(InvalidDocumentError) as caught:
        policy_with(tools)
    assert str(caught.value) == f"p.yaml:4: {problem}"


# Words


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("delete_user", ("delete", "user")),
        ("deleteUser", ("delete", "user")),
        ("DeleteUser2", ("delete", "user", "2")),
        ("mcp__db__deleteRow", ("mcp", "db", "delete", "row")),
        ("HTTPDelete", ("http", "delete")),
        ("runSQL", ("run", "sql")),
        ("db-drop.index", ("db", "drop", "index")),
        ("", ()),
        ("löschen", ("l", "schen")),
    ],
)
def test_the_words_of_a_name(name: str, words: tuple[str, ...]) -> None:
    """Snake, kebab, camel, Pascal and dotted names have the same words."""
    assert words_in(name) == words


@pytest.mark.parametrize(
    ("tools", "name", "is_matched"),
    [
        ("[{words: [delete]}]", "userDelete", True),
        ("[{words: delete}]", "user_delete", True),
        ("[{words: [delete]}]", "deleted_users", False),
        ("[{words: [order], without: [get]}]", "order_lamp", True),
        ("[{words: [order], without: [get]}]", "getOrder", False),
        ("[{words: [order], name: 'shop.*'}]", "shop.order", True),
        ("[{words: [order], name: 'shop.*'}]", "order", False),
    ],
)
def test_words_of_the_name_decide(tools: str, name: str, is_matched: bool) -> None:
    """A word matches as a whole, `without` excludes a name, and a glob narrows the match."""
    assert matches(tools, ToolCall(name)) is is_matched


@pytest.mark.parametrize(
    ("words", "arguments", "is_matched"),
    [
        ("rm", '{"c": "sudo /bin/rm -rf x"}', True),
        ("rm", '{"c": "RM x"}', True),
        ("rm", '{"c": "farm; form"}', False),
        ("git push --force", '{"c": "git -C a push origin main --force"}', True),
        ("git push --force", '{"c": ["git", "push", "--force"]}', True),
        ("git push --force", '{"c": "git push; ls --force"}', False),
        ("git push --force", '{"c": "git push --force-with-lease"}', False),
        ("delete from", '{"c": "Delete\\n  From `t`"}', False),
        ("delete from", '{"c": "Delete  From `t`"}', True),
        ("a a b", '{"c": "a b a b"}', True),
        ("a a b", '{"c": "a b b"}', False),
        ("rm", '{"c": 5}', False),
        ("rm", '{"d": "rm"}', False),
    ],
)
def test_words_of_an_argument(words: str, arguments: str, is_matched: bool) -> None:
    """A phrase matches if its words are in order in one command, in any case."""
    tools = f"[{{name: t, arguments: {{c: {{words: {words}}}}}}}]"
    assert matches(tools, ToolCall("t", arguments)) is is_matched


def test_one_of_several_sets_of_arguments_is_enough() -> None:
    """In a list one mapping of arguments has to match, in a mapping every entry."""
    tools = "[{name: t, arguments: [{a: 1, b: 2}, {'*amount*': {above: 5}}]}]"
    assert matches(tools, ToolCall("t", '{"a": 1, "b": 2}'))
    assert matches(tools, ToolCall("t", '{"a": 1, "the_amount_eur": 6}'))
    assert not matches(tools, ToolCall("t", '{"a": 1, "amount": 5}'))


def test_words_in_a_hostile_text_take_linear_time() -> None:
    """Words are found in linear time in hostile texts of a megabyte."""
    policy = load_policy("agent-tools")
    for text in ("git " * 250_000, ";" * 1_000_000, "git push; " * 100_000, "x" * 1_000_000):
        facts = Facts(0.95, "m", tools=(ToolCall("bash", json.dumps({"command": text})),))
        began = time.process_time()
        decide(policy, facts)
        assert time.process_time() - began < 10


def test_a_wider_list_of_words_shadows_a_narrower_one() -> None:
    """`check` warns of a rule whose words an earlier rule already has."""
    text = (
        "version: 1\nname: p\nrules:\n"
        "- {name: a, when: {tools: [{words: [delete, drop]}]}, then: hold}\n"
        "- {name: b, when: {tools: [{words: [drop], without: [get]}]}, then: hold}\n"
        "default: deliver"
    )
    assert any("can never match" in each.message for each in lint(parse_policy(text, "p.yaml")))
