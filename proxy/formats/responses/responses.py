"""`/v1/responses`: items in, items out, one answer for each request."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from calibrator import (
    NotScorableError,
    Question,
    listed_tools,
    own_instructions,
    read_question,
)
from proxy.errors import ProxyError
from proxy.formats.base.edits import (
    Changes,
    Editable,
    EditableText,
    WantedJson,
    editable_call,
    wanted_of,
)
from proxy.formats.base.format import (
    NOTICE_GAP,
    Assembler,
    Choice,
    Ending,
    Json,
    Marks,
    NoAnswerError,
    last_users_text,
    text_of,
    turns_in,
)
from proxy.formats.base.openai import error_body, is_constrained
from proxy.formats.responses.responses_events import EventWriter, add_member, error_event
from proxy.formats.responses.responses_items import (
    as_items,
    chat_messages,
    chat_tools,
    logprobs_of,
    tools_in_items,
    with_text,
)
from proxy.formats.responses.responses_stream import ResponsesAssembler, answer_to, finish_reason
from proxy.http.wire.json_rewrite import REMOVED
from proxy.http.wire.sse import Event

ELSEWHERE = {  # parameters for text that is not in the request, with a word for the reason
    "previous_response_id": "unknown_previous_response",
    "conversation": "conversation",
    "prompt": "prompt_template",
}
_CALLED = {  # members of the items of a reply that call a function, by their type
    "function_call": ("call_id", "name", "arguments"),
    "custom_tool_call": ("call_id", "name", "input"),
}
_HARMLESS_TOOLS = ("function", "custom", "web_search", "file_search", "computer", "local_shell")
"""Beginnings of the types of tools that the client runs itself or that only search."""
_UNFINISHED = {
    "queued": "background",
    "in_progress": "background",
    "failed": "upstream_error",
    "cancelled": "upstream_error",
}


class ResponsesFormat:
    """OpenAI's responses, as coding agents and newer SDKs speak them."""

    name = "responses"
    path = "/responses"
    held_prefix = "resp_held_"
    fetch_path = path
    asks_logprobs: Mapping[str, Any] = MappingProxyType(
        {"include": ["message.output_text.logprobs"], "top_logprobs": 5}
    )
    marks = Marks(
        (b"response.", rb'(?:completed|incomplete|failed|cancelled)"'),
        b"output_item",
        (b"_call", rb"[_.]"),
        b'"error"',
        b"[DONE]",
    )

    def question(self, payload: Json) -> Question:
        """Return the question in the input, the instructions and the tools, as chat messages.

        Raises NotScorableError where text is neither in the input nor remembered (conversations).
        """
        for name, reason in ELSEWHERE.items():
            if payload.get(name):
                raise NotScorableError(reason, f"{name!r} stands for text that is not here")
        try:
            messages = chat_messages(as_items(payload.get("input")))
            if instructions := text_of(own_instructions(payload.get("instructions"))):
                messages.insert(0, {"role": "system", "content": instructions})
            items = as_items(payload.get("input"))
            tools = chat_tools(payload.get("tools")) + tools_in_items(items)
            question = read_question(messages, tools)
            question.listed = listed_tools(items)
            return question
        except ValueError as error:  # upstream accepted what we cannot read
            raise NotScorableError("input", str(error)) from error

    def last_question(self, payload: Json) -> str:
        """Return the user's last text in the input; an empty string if there is none."""
        items = payload.get("input")
        if not isinstance(items, list):
            return items if isinstance(items, str) else ""
        of_user = [i for i in items if isinstance(i, dict) and i.get("role") == "user"]
        return last_users_text(of_user)

    def user_turns(self, payload: Json) -> list[Any]:
        items = payload.get("input")
        return [items] if isinstance(items, str) else turns_in(items)

    def count(self, payload: Json) -> int:
        return 1

    def without_effects(self, payload: Json) -> Json | None:
        """Return the change that stores nothing, or None where upstream would act.

        It acts in a conversation, in the background, and with its own tools that do more than
        search.
        """
        tools = payload.get("tools")
        kinds = [t.get("type") if isinstance(t, dict) else None for t in tools or ()]
        acts = any(not str(kind).startswith(_HARMLESS_TOOLS) for kind in kinds)
        if acts or payload.get("conversation") or payload.get("background"):
            return None
        return {"store": False}

    def revision(self, payload: Json, completion: Json, problems: str) -> Json | None:
        """Return `input` with the reply and its problems at the end, to be revised.

        The problems are the results of its calls, or a message of the user. None for an empty
        reply.
        """
        request_input, items = payload.get("input"), completion.get("output")
        messages = (
            [{"role": "user", "content": request_input}]
            if isinstance(request_input, str)
            else request_input
        )
        if not isinstance(messages, list) or not isinstance(items, list):
            return None
        text = answer_to(items).get("content")
        added: list[Json] = [{"role": "assistant", "content": text}] if text else []
        results: list[Json] = []
        for item in items:
            kind = item.get("type") if isinstance(item, dict) else None
            if kind in _CALLED:
                call = {k: v for k, v in item.items() if k in (*_CALLED[kind], "type")}
                added.append(call)
                result = {"type": f"{kind}_output", "call_id": item.get("call_id")}
                results.append({**result, "output": problems})
        if not added:
            return None
        return {"input": [*messages, *added, *(results or [{"role": "user", "content": problems}])]}

    def wants_schema(self, payload: Json) -> bool:
        """Return whether a request wants JSON, or constrains the answer in a server's own way."""
        text = payload.get("text")
        text_format = text.get("format") if isinstance(text, dict) else None
        is_formatted = isinstance(text_format, dict) and text_format.get("type", "text") != "text"
        return is_formatted or is_constrained(payload)

    def conversation(self, payload: Json) -> tuple[Any, Any]:
        return payload.get("instructions"), payload.get("input")

    def wanted_json(self, payload: Json) -> WantedJson | None:
        text = payload.get("text")
        return wanted_of(text.get("format") if isinstance(text, dict) else None)

    def text_request(self, model: str, instructions: str, text: str) -> Json:
        return {"model": model, "instructions": instructions, "input": text, "store": False}

    def choices(self, completion: Json) -> list[Choice]:
        """Return the one choice of a response, as a chat message; [] for any other value.

        Raises NoAnswerError for a response that is not finished or has failed.
        """
        items = completion.get("output")
        if completion.get("object", "response") != "response" or not isinstance(items, list):
            return []
        if reason := _UNFINISHED.get(str(completion.get("status"))):
            raise NoAnswerError(reason, part="output" if items else None)
        reason = finish_reason(completion) or "stop"
        return [Choice(0, answer_to(items), reason, logprobs_of(items))]

    def editable(self, completion: Json) -> Editable:
        """Return all texts of the messages as one, and the calls of the client's tools.

        There is no text to edit in a reply of calls alone. Raises KeyError, TypeError or
        AttributeError for another form.
        """
        items = completion["output"]
        calls = [
            editable_call(item, "string", ("output", index), "arguments")
            if item["type"] == "function_call"
            else editable_call(item, "text", ("output", index), "input")
            for index, item in enumerate(items)
            if item.get("type") in ("function_call", "custom_tool_call")
        ]
        parts = [
            (("output", index, "content", number), part)
            for index, item in enumerate(items)
            if item.get("type") == "message"
            for number, part in enumerate(item.get("content") or ())
            if part.get("type") in ("output_text", "refusal")
        ]
        if not parts:
            return Editable([], calls)
        texts = [part.get("text") or part.get("refusal") or "" for _, part in parts]

        def changes(text: str) -> Changes:
            """Return what a new text changes, by place: one part for all, and a cut ending."""
            first, *others = (place for place, _ in parts)
            new = {"type": "output_text", "text": text, "annotations": [], "logprobs": []}
            changed: Changes = {first: new, **{place: REMOVED for place in others}}
            if "output_text" in completion:
                changed["output_text",] = text
            if completion.get("status") == "incomplete":
                changed |= {("status",): "completed", ("incomplete_details",): None}
                changed["output", first[1], "status"] = "completed"
            return changed

        return Editable([EditableText("\n".join(texts), changes)], calls)

    def assembler(self) -> Assembler:
        return ResponsesAssembler()

    def annotate_event(self, event: Event, member: Mapping[str, Any]) -> bytes:
        return add_member(event, member)

    def replace_text(self, completion: Json, text: str, ending: Ending) -> Json:
        """Return the response with one message of text, completed or cut by `ending`."""
        is_whole = ending == "stop"
        status = "completed" if is_whole else "incomplete"
        part = {"type": "output_text", "text": text, "annotations": [], "logprobs": []}
        message = {
            "id": "msg_" + str(completion.get("id")).removeprefix("resp_"),
            "type": "message",
            "status": status,
            "role": "assistant",
            "content": [part],
        }
        restated = {
            **completion,
            "status": status,
            "incomplete_details": None if is_whole else {"reason": ending},
            "output": [message],
        }
        return restated | ({"output_text": text} if "output_text" in completion else {})

    def add_notice(self, completion: Json, notice: str) -> Json | None:
        """Return the response with a notice after its last text, or None if there is no text."""
        items, added = list(completion["output"]), NOTICE_GAP + notice
        for at in reversed(range(len(items))):
            if changed := with_text(items[at], added):
                items[at] = changed
                whole = completion.get("output_text")
                members = {"output_text": whole + added} if isinstance(whole, str) else {}
                return {**completion, "output": items, **members}
        return None

    def placeholder(self, text: str, *, id: str, created: int, model: str) -> Json:
        """Return an incomplete response that says `text`, as one that a content filter cut."""
        empty: Json = {
            "id": id,
            "object": "response",
            "created_at": created,
            "status": "incomplete",
            "error": None,
            "incomplete_details": None,
            "instructions": None,
            "metadata": {},
            "model": model,
            "output": [],
            "parallel_tool_calls": True,
            "temperature": None,
            "tool_choice": "auto",
            "tools": [],
            "top_p": None,
        }
        return self.replace_text(empty, text, "content_filter")

    def events(self, completion: Json, payload: Json) -> list[bytes]:
        """Return the response as events: its start, its items, and the end with our member."""
        writer = EventWriter()
        writer.start(completion)
        for index, item in enumerate(completion.get("output") or []):
            writer.item(index, item)
        writer.finish(completion)
        return writer.events

    def error_body(self, error: ProxyError) -> bytes:
        return error_body(error)

    def error_event(self, error: ProxyError) -> bytes:
        return error_event(error)
