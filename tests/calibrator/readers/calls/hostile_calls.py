"""Hostile replies and conversations: huge, nested, of wrong types."""

from __future__ import annotations

from typing import Any

from calibrator import ToolUse

Json = dict[str, Any]

LONG = 1_000_000
ARGUMENTS = '{"account": "AC-7781", "amount": 40.5, "day": "2024-05-16", "note": "as agreed"}'


def called(arguments: Any = ARGUMENTS, name: Any = "pay_out", number: Any = "c1") -> Json:
    """Return an assistant's message with one call."""
    function = {"name": name, "arguments": arguments}
    return {
        "role": "assistant",
        "content": None,
        "tool_calls": [{"id": number, "type": "function", "function": function}],
    }


def nested(depth: int, *, is_list: bool = False) -> Any:
    """Return a value nested in `depth` objects, or lists."""
    value: Any = "end"
    for _ in range(depth):
        value = [value] if is_list else {"in": value}
    return value


def _tool(name: Any = "pay_out", parameters: Any = None) -> Json:
    return {"type": "function", "function": {"name": name, "parameters": parameters}}


def _user(text: Any) -> list[Json]:
    return [{"role": "user", "content": text}]


def _result(text: Any) -> list[Json]:
    return [*_user("Pay 40.50 to Ada."), called('{"q": "Ada"}', "look"),
            {"role": "tool", "tool_call_id": "c1", "content": text}]  # fmt: skip


def hostile_calls() -> dict[str, ToolUse]:
    """Return hostile replies by their kind."""
    plain = called()
    long_texts = {
        "spaces": " " * LONG,
        "digits": "1" * LONG,
        "commas": "1,111" * (LONG // 5),
        "dots": "1." * (LONG // 2),
        "dates": "2024-05-16 " * (LONG // 11),
        "ats": "a@" * (LONG // 2),
        "mail": "a" * LONG + "@" + "b." * 1000,
        "quotes": "'\"" * (LONG // 2),
        "braces": "{" * LONG,
        "brackets": "[" * LONG,
        "objects": "{}" * (LONG // 2),
        "pairs": '"a": ' * (LONG // 5),
        "colons": "a: b, " * (LONG // 6),
        "equals": "a" * LONG + "=",
        "lines": "a\n" * (LONG // 2),
        "words": "never pay out more than 10 " * (LONG // 27),
        "surrogates": "\ud800" * LONG,
        "zeros": "\x00" * LONG,
        "case": "İ" * LONG,
        "today": "today " * (LONG // 6),
        "until": "in a week " * (LONG // 10),
        "sharp": "<" * LONG,
        "under": "_a" * (LONG // 2),
    }
    found: dict[str, ToolUse] = {}
    for name, text in long_texts.items():
        found[f"request of {name}"] = ToolUse(_user(text), [_tool()], plain)
        found[f"rules of {name}"] = ToolUse(
            [{"role": "system", "content": text}, *_user("Pay 40.50 to Ada.")], [], plain
        )
        found[f"result of {name}"] = ToolUse(_result(text), [_tool()], plain)
        found[f"listed {name}"] = ToolUse(_result("[" + text), [_tool()], plain)
        found[f"arguments of {name}"] = ToolUse(_user("Pay."), [_tool()], called(text))
        found[f"value of {name}"] = ToolUse(
            _user("Pay."), [_tool()], called({"account_id": text, "day": text[:50], text: "a"})
        )
        found[f"name of {name}"] = ToolUse(_user("Pay."), [_tool(text)], called("{}", text))
        found[f"thought of {name}"] = ToolUse(_user("Pay."), [], {**plain, "content": text})
        found[f"schema of {name}"] = ToolUse(
            _user("Pay."),
            [{"name": "pay_out", "description": text,
              "parameters": {"properties": {text: {"description": text, "enum": [text] * 99}}}}],
            plain,
        )  # fmt: skip
    return found | _shapes(plain)


def _shapes(plain: Json) -> dict[str, ToolUse]:
    """Return replies with wrong types, many items and deep nesting."""
    ask = _user("Pay 40.50 to Ada.")
    result = {"role": "tool", "tool_call_id": "c1", "content": "Ada: AC-7781, 40.5; " * 190}
    heavy = {"tool_calls": [called('{"a": "' + "b" * 19_000 + '"}')["tool_calls"][0]] * 500}
    odd: list[Any] = [None, 1, 1.5, True, "text", [], {}, [[]], {"a": 1}, float("nan"), b"bytes"]
    found = {
        "ten thousand messages": ToolUse([*ask, plain, result] * 3_400, [_tool()], plain),
        "ten thousand turns": ToolUse(ask * 10_000, [_tool()], plain),
        "ten thousand calls": ToolUse(
            ask, [], {"tool_calls": plain["tool_calls"] * 10_000}
        ),
        "heavy calls before": ToolUse([*ask, *[heavy] * 400], [], plain),
        "heavy calls": ToolUse(ask, [], heavy),
        "ten thousand tools": ToolUse(ask, [_tool(f"tool_{n}") for n in range(10_000)], plain),
        "many values": ToolUse(ask, [], called({f"a{n}": n for n in range(100_000)})),
        "many items": ToolUse(ask, [], called({"ids": [f"id-{n}" for n in range(100_000)]})),
        "many properties": ToolUse(
            ask,
            [_tool("pay_out", {"properties": {f"p{n}": {"type": "string"} for n in range(100_000)},
                               "required": [f"p{n}" for n in range(100_000)]})],
            plain,
        ),
        "deep arguments": ToolUse(ask, [], called(nested(50_000))),
        "deep list": ToolUse(ask, [], called({"a": nested(50_000, is_list=True)})),
        "deep text": ToolUse(ask, [], called("[" * 9_000 + "]" * 9_000)),
        "deep result": ToolUse(_result("[" * 2_000 + "]" * 2_000), [], plain),
        "records": ToolUse(
            _result("[" + ",".join(f'{{"id": {n}, "q": "Ada"}}' for n in range(140)) + "]"),
            [], plain,
        ),
        "not a number": ToolUse(
            ask, [], called({"a": float("nan"), "b": float("inf"), "c": 10**400, "d": -(10**400)})
        ),
        "not a number in text": ToolUse(ask, [], called('{"a": NaN, "b": Infinity, "c": 1e999}')),
        "long digits in text": ToolUse(ask, [], called('{"a": ' + "9" * 5_000 + "}")),
        "strange keys": ToolUse(ask, [], called({1: 2, None: 3, ("a",): 4, "\ud800": "\udfff"})),
        "dates of no calendar": ToolUse(
            _user("On 2024-02-30, in 9999999999 weeks, 31/02/2024, 0000-01-01; today 9999-12-31"),
            [], called({"day": "0000-00-00", "from_date": "9999-99-99", "to_date": "2024-02-30"}),
        ),
        "end of time": ToolUse(
            _user("Today is 9999-12-31. Do it tomorrow, the day after tomorrow, next Monday, "
                  "in 4 weeks. Yesterday was 0001-01-01."), [], called({"day": "9999-12-31"}),
        ),
        "start of time": ToolUse(
            _user("Today is 0001-01-01. It was due yesterday, last Monday."), [],
            called({"day": "0001-01-01"}),
        ),
    }  # fmt: skip
    for number, value in enumerate(odd):
        found[f"odd content {number}"] = ToolUse(_user(value) + _result(value), [value], plain)
        found[f"odd messages {number}"] = ToolUse([value] * 3, [value] * 3, called(value))
        found[f"odd message {number}"] = ToolUse(value, value, value)
        found[f"odd call {number}"] = ToolUse(ask, [], {"tool_calls": value, "content": value})
        found[f"odd function {number}"] = ToolUse(
            ask, [], {"tool_calls": [{"function": value}, value], "function_call": value}
        )
        found[f"odd schema {number}"] = ToolUse(
            ask,
            [_tool("pay_out", {"properties": {"account": value, "amount": {"type": value,
             "enum": value, "default": value, "description": value}}, "required": value}),
             _tool(value, value)],
            called(number=value),
        )  # fmt: skip
        found[f"odd value {number}"] = ToolUse(ask, [], called({"account": value, "d": [value]}))
    return found
