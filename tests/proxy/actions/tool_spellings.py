"""Calls of one tool in every spelling that a client may read as that tool, for each API.

A client that normalises a name, takes one of several names or decodes arguments twice runs `TOOL`
with AMOUNT, and each answer says SECRET in the arguments.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from tests.builders.undecided_replies import Case, stream, written
from tests.servers.faulty_upstream import JSON, Response
from tests.servers.undecided import ANSWERS, SECRET, Json

TOOL = "refund_order"
OTHER = "look_up"
AMOUNT = 900
ARGUMENTS = json.dumps({"amount": AMOUNT, "order": SECRET})

NAMES = (
    TOOL,
    *(f"{prefix}{TOOL}" for prefix in ("functions.", "tools.", "function.", "tool.", "Functions.")),
    *(f"{prefix}{TOOL}" for prefix in ("functions:", "functions/", "functions::", "functions__")),
    *(f"{prefix}{TOOL}" for prefix in ("default_api.", "default_api:", "functions.functions.")),
    *(f"{prefix}{TOOL}" for prefix in ("default-api.", "functions.'tool:")),
    *(
        f"{TOOL}{suffix}"
        for suffix in (":0", ":12", "#1", "()", "<|channel|>commentary", '({"a":1})')
    ),
    *(f"functions.{TOOL}{suffix}" for suffix in (":0", "<|constrain|>json")),
    *(f"{prefix}{TOOL}" for prefix in ("functions .", "functions->", "functions\\.", "mcp__")),
    *(f"{prefix}{TOOL}" for prefix in ("to=functions.", "tool_call:", "action: ", "<|start|>")),
    *(f"<tool>{TOOL}</tool>", f"<function={TOOL}>", f'<invoke name="{TOOL}">'),
    *(f"{TOOL}{suffix}" for suffix in ('{"a": 1}', "[]", "<tool_sep>", "?x=1", "\\n", ";")),
    *(f" {TOOL}", f"{TOOL} ", f"\t{TOOL}\n", f"\u00a0{TOOL}", f"\u3000{TOOL}\u3000"),
    *(f'"{TOOL}"', f"'{TOOL}'", f"`{TOOL}`"),
    *("Refund_Order", "REFUND_ORDER", "refundOrder", "RefundOrder", "refund-order", "refund order"),
    *("refund\\_order", "refund__order", "refund.order", "refund\\.order", "tools.refund\\.order"),
    *("refund\u200b_order", "\ufeffrefund_order", "refund\u00ad_order", "refund_order\u2060"),
    "".join(chr(ord(each) + 0xFEE0) for each in TOOL),  # in full width
    *("\uff52efund_order", "\U0001d42befund_order"),
    *("\ufe0frefund_order", "refund_order\u034f"),
)
NAMES_IF_OFFERED = (
    *(
        f"{prefix}{TOOL}"
        for prefix in ("repo_browser.", "mcp__shop__", "shop.", "shop/", "client:")
    ),
    *(f"{TOOL}.call", f"{TOOL}/0", f"{TOOL} to=functions", f"assistant to={TOOL}"),
    TOOL * 2,
    TOOL * 40,
    f'{{"name": "{TOOL}"}}',
)
"""Spellings that only a client knows to be this tool, because its request offers it."""

SPELLED_ARGUMENTS = (
    ARGUMENTS,
    json.dumps(ARGUMENTS),
    json.dumps(json.dumps(ARGUMENTS)),
    json.dumps([{"amount": AMOUNT, "order": SECRET}]),
    json.dumps([ARGUMENTS]),
    f" {ARGUMENTS}\n",
    f"```json\n{ARGUMENTS}\n```",
    f"{ARGUMENTS}{ARGUMENTS}",
    f"{ARGUMENTS},",
    f"{{'amount': {AMOUNT}, 'order': '{SECRET}'}}",
    f'{{"amount": "{AMOUNT}", "order": "{SECRET}"}}',
    f'{{"amount": 1, "amount": {AMOUNT}, "order": "{SECRET}"}}',
    f'"{SECRET}"',
    f'{{"amount": "EUR 900", "order": "{SECRET}"}}',
    f'{{"amount": [1, {AMOUNT}], "order": "{SECRET}"}}',
    f'{{"amount": 1e999, "order": "{SECRET}"}}',
    f'{{"amount": "{{\\"value\\": {AMOUNT}}}", "order": "{SECRET}"}}',
)


def whole_calls(surface: str, name: str, arguments: str = ARGUMENTS) -> Iterator[Case]:
    """Yield whole answers that call a tool by a name, in each form that the API has for a call."""
    if surface == "chat":
        function = {"name": name, "arguments": arguments}
        custom = {"name": name, "input": arguments}
        yield (
            "function",
            chat({"tool_calls": [{"id": "c", "type": "function", "function": function}]}),
        )
        yield "custom", chat({"tool_calls": [{"id": "c", "type": "custom", "custom": custom}]})
        yield "legacy", chat({"function_call": function})
        uses = [{"recipient_name": name, "parameters": _object(arguments)}]
        for form, text in parallel_forms(uses):
            parallel = {"name": "multi_tool_use.parallel", "arguments": text}
            call = {"id": "c", "type": "function", "function": parallel}
            yield form, chat({"tool_calls": [call]})
    if surface == "responses":
        for kind, member in (("function_call", "arguments"), ("custom_tool_call", "input")):
            item = {"id": "i", "call_id": "c", "type": kind, "name": name, member: arguments}
            yield kind, whole({**ANSWERS[surface], "output": [item]})
    if surface == "messages":
        block = {"type": "tool_use", "id": "t", "name": name, "input": _object(arguments)}
        answer = {**ANSWERS[surface], "content": [block], "stop_reason": "tool_use"}
        yield "tool_use", whole(answer)


def parallel_forms(uses: list[Json]) -> Iterator[tuple[str, str]]:
    """Yield the arguments of several calls in one, as models write them."""
    plain = json.dumps({"tool_uses": uses})
    yield "parallel", plain
    yield "parallel, encoded twice", json.dumps(plain)
    yield "parallel, no JSON", f"{plain},"
    yield "parallel, escaped", plain.replace("recipient", "\\u0072ecipient")
    inner = {"recipient_name": "multi_tool_use.parallel", "parameters": {"tool_uses": uses}}
    yield "parallel in parallel", json.dumps({"tool_uses": [inner]})
    yield "parallel, one use", json.dumps({"tool_uses": uses[0]})
    yield "parallel, other members", json.dumps({"tool_uses": [{**uses[0], "recipient_name": 1}]})
    yield "parallel, other list", json.dumps({"calls": uses})


def streamed_calls(surface: str, name: str, arguments: str = ARGUMENTS) -> Iterator[Case]:
    """Yield the same answers as streams."""
    if surface == "chat":
        for kind, member in (("function", "arguments"), ("custom", "input")):
            call = {"name": name, member: arguments}
            yield kind, chat_deltas([call], kind)
        yield "legacy", chat_deltas([{"name": name, "arguments": arguments}], "legacy")
    if surface == "responses":
        item = {"id": "i", "call_id": "c", "type": "function_call", "name": name}
        yield "function_call", responses_stream({**item, "arguments": arguments})
    if surface == "messages":
        yield "tool_use", messages_stream(name, {}, arguments)


def named_twice() -> Iterator[Case]:
    """Yield streams whose deltas have several names, for each kind of call of a chat message."""
    names = {
        "the name in each delta": [TOOL] * 3,
        "the name behind another": [OTHER, TOOL],
        "the name before another": [TOOL, OTHER],
        "the name between others": [OTHER, TOOL, OTHER],
        "the name in pieces": ["refund", "_order"],
        "a name that grows": ["refund", "refund_order"],
        "a spelling behind another": [OTHER, f"functions.{TOOL}"],
        "an empty name first": ["", TOOL],
        "an empty name last": [TOOL, ""],
    }
    for kind in ("function", "custom", "legacy"):
        member = "input" if kind == "custom" else "arguments"
        for case, sequence in names.items():
            pieces: list[Json] = [{"name": name} for name in sequence]
            pieces[-1][member] = ARGUMENTS
            yield f"{kind}: {case}", chat_deltas(pieces, kind)
        yield (
            f"{kind}: the name behind the arguments",
            chat_deltas([{"name": OTHER, member: ARGUMENTS}, {"name": TOOL}], kind),
        )


def chat(message: Json) -> Response:
    choice = {"index": 0, "message": {"role": "assistant", "content": None, **message}}
    return whole({**ANSWERS["chat"], "choices": [{**choice, "finish_reason": "tool_calls"}]})


def whole(answer: Any) -> Response:
    return Response([json.dumps(answer).encode()], headers=JSON)


def chat_deltas(pieces: list[Json], kind: str) -> Response:
    """Return a stream of one call whose deltas carry these pieces."""
    head = {"id": "c", "object": "chat.completion.chunk", "created": 1, "model": "m"}
    deltas: list[Json] = [{"role": "assistant", "content": None}]
    for piece in pieces:
        call = {"index": 0, "id": "c", "type": kind, kind: piece}
        deltas.append({"function_call": piece} if kind == "legacy" else {"tool_calls": [call]})
    choices: list[Json] = [{"index": 0, "delta": each, "finish_reason": None} for each in deltas]
    choices.append({"index": 0, "delta": {}, "finish_reason": "tool_calls"})
    chunks = [json.dumps({**head, "choices": [each]}).encode() for each in choices]
    return stream(written([(None, chunk) for chunk in (*chunks, b"[DONE]")]))


def responses_stream(item: Json) -> Response:
    answer = {**ANSWERS["responses"], "output": [item]}
    begun = {**answer, "status": "in_progress", "output": []}
    events: list[tuple[str, Json]] = [
        ("response.created", {"response": begun}),
        ("response.output_item.added", {"output_index": 0, "item": {**item, "arguments": ""}}),
        (
            "response.function_call_arguments.delta",
            {"output_index": 0, "item_id": "i", "delta": item["arguments"]},
        ),
        ("response.output_item.done", {"output_index": 0, "item": item}),
        ("response.completed", {"response": answer}),
    ]
    return _typed([{"type": kind, "sequence_number": n, **e} for n, (kind, e) in enumerate(events)])


def messages_stream(name: str, start: Json, arguments: str) -> Response:
    """Return a stream of one call whose block begins with an input, and whose delta has another."""
    block = {"type": "tool_use", "id": "t", "name": name, "input": start}
    delta = {"type": "input_json_delta", "partial_json": arguments}
    begun = {**ANSWERS["messages"], "content": [], "stop_reason": None}
    return _typed(
        [
            {"type": "message_start", "message": begun},
            {"type": "content_block_start", "index": 0, "content_block": block},
            {"type": "content_block_delta", "index": 0, "delta": delta},
            {"type": "content_block_stop", "index": 0},
            {"type": "message_delta", "delta": {"stop_reason": "tool_use"}, "usage": {}},
            {"type": "message_stop"},
        ]
    )


def _typed(events: list[Json]) -> Response:
    return stream(written([(event["type"], json.dumps(event).encode()) for event in events]))


def _object(arguments: str) -> Any:
    """Return the arguments as an object, for APIs that need one, or as text if they are no JSON."""
    try:
        return json.loads(arguments)
    except ValueError:
        return arguments
