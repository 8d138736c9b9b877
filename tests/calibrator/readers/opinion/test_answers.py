"""Final answers of replies, found in their text and calls."""

from __future__ import annotations

import time

import pytest

from calibrator.readers.opinion import final_answer
from calibrator.scorer import ToolUse

OPTIONS = "Which gas do plants take up?\nA. oxygen\nB. carbon dioxide\nC. helium"
HOW_MANY = "How many apples are left?"
WHO = "Who painted the ceiling?"
OFFERED = 'Book a room. Functions: [{"name": "book", "description": "..", "parameters": {}}]'


@pytest.mark.parametrize(
    ("question", "reply", "kind", "value"),
    [
        (OPTIONS, "Plants need it. The answer is (B).", "option", "B"),
        (OPTIONS, "(B)", "option", "B"),
        (OPTIONS, "b", "option", "B"),
        (OPTIONS, "carbon dioxide", "option", "B"),
        (OPTIONS, "\\boxed{C}", "option", "C"),
        (OPTIONS, '{"reasoning": "..", "answer": "A"}', "option", "A"),
        (HOW_MANY, "7 - 2 = 5, so 5 apples are left.", "number", "5"),
        (HOW_MANY, "#### 1,200", "number", "1200"),
        (HOW_MANY, '{"answer": "1200.0"}', "number", "1200"),
        ("Solve for x.", "So $x = \\boxed{\\dfrac{3}{4}}$.", "number", "0.75"),
        ("Solve for x.", "The answer is 3/4.", "number", "0.75"),
        ("Factor it.", "\\boxed{(x+1)(x-2)}", "formula", "(x+1)(x-2)"),
        ("Is 91 a prime?", "No, 91 = 7 * 13.", "claim", "no"),
        ("Is 91 a prime?", "It is 7 * 13, so the answer is no.", "claim", "no"),
        (WHO, "Michelangelo", "words", "michel"),
        (WHO, "The ceiling was painted by Michelangelo.", "words", "michel"),
        ("def f(a):\n    return a\nassert f('hb') == ??", '"answer": "\'hb\'"', "formula", "hb"),
        ("Add them.", "[add(a=1, b='2')]", "calls", "add(a=1,b=2)"),
        ("Add them.", '[{"add": "{\\"b\\": 2, \\"a\\": 1.0}"}]', "calls", "add(a=1,b=2)"),
        ("Add them.", "[add\\_up(a=1)]", "calls", "add_up(a=1)"),
        ("Add them.", "add({'b': 2, 'a': 1})", "calls", "add(a=1,b=2)"),
        ("Add them.", "None of the functions adds.", "words", "adds functi none"),
        (OFFERED, "[book(nights=2)]", "calls", "book(nights=2)"),
        (OFFERED, "I can not do that: there is no function for it.", "calls", ""),
        (OFFERED, "[]", "calls", ""),
        (OFFERED, "[{'name': 'book', 'arguments': {'nights': 2}}]", "none", ""),
        (OFFERED, "Call it so: book(nights=2)", "none", ""),
        ("Write an essay.", "It begins " + "here and goes on with more words " * 30, "none", ""),
        (HOW_MANY, "", "none", ""),
        ("", "", "none", ""),
    ],
)
def test_final_answers(question: str, reply: str, kind: str, value: str) -> None:
    """The final answer is an option, number, formula, yes or no, words, calls, or nothing."""
    found = final_answer(question, reply)
    assert (found.kind, found.value) == (kind, value)


def calls(*named: tuple[str, str]) -> ToolUse:
    made = [{"function": {"name": name, "arguments": text}} for name, text in named]
    return ToolUse((), (), {"role": "assistant", "tool_calls": made})


def test_calls_are_the_same_in_another_order_and_spelling() -> None:
    """Order of calls and arguments, numbers as text and quotes make no other answer."""
    one = calls(("pay", '{"to": "Ann", "sum": 5}'), ("log", "{}"))
    other = calls(("log", "{}"), ("pay", '{"sum": "5.0", "to": "ann"}'))
    assert final_answer("Pay Ann 5.", "", one) == final_answer("Pay Ann 5.", "", other)
    third = calls(("pay", '{"to": "Ann", "sum": 50}'), ("log", "{}"))
    assert final_answer("Pay Ann 5.", "", one) != final_answer("Pay Ann 5.", "", third)


@pytest.mark.parametrize(
    "reply",
    [
        "\\boxed{" * 5_000,
        '"answer": "' * 5_000,
        "answer is " * 10_000,
        "[" * 50_000,
        "[f(a=" + "(" * 5_000,
        "1," * 50_000,
        "9" * 100_000,
        "\\text{" * 20_000,
        "a" * 1_000_000,
        '{"name": "x", "arguments": ' + "[" * 3_000,
        "\ud800\x00",
        '"parameters" ' + '"name": "x", "description"' * 5_000,
        "f(" * 50_000,
        "f(" + " " * 50_000,
    ],
)
def test_a_hostile_reply_takes_no_time(reply: str) -> None:
    """A hostile reply is read within a second."""
    start = time.process_time()
    final_answer("How many?\nA. one\nB. two", reply)
    final_answer(reply, reply)
    assert time.process_time() - start < 1.0


@pytest.mark.parametrize("message", [{"tool_calls": "x"}, {"tool_calls": [1, {"function": None}]}])
def test_calls_of_another_shape_are_no_crash(message: dict[str, object]) -> None:
    """Calls of another shape are read as calls."""
    assert final_answer("Do it.", "", ToolUse((), (), message)).kind == "calls"
