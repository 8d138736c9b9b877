"""`/v1/chat/completions`."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from types import MappingProxyType
from typing import Any

from calibrator import NotScorableError, Question, read_question
from proxy.formats.base.edits import (
    Changes,
    Editable,
    EditableCall,
    EditableText,
    WantedJson,
    editable_call,
    uncut,
    wanted_of,
)
from proxy.formats.base.format import (
    MEMBER,
    NOTHING,
    NOTICE_GAP,
    Assembler,
    Choice,
    Ending,
    EventMeaning,
    Json,
    Marks,
    last_users_text,
    text_of,
    turns_in,
)
from proxy.formats.base.openai import ChoicesFormat, ChunkAssembler, includes_usage
from proxy.formats.events.called import has_call
from proxy.formats.events.merging import (
    LEARNT_FROM,
    TRIES,
    AlikeEvents,
    GrowingCalls,
    Pieces,
    alike,
    index_of,
    join_texts,
    merge,
    names_in,
    plain_objects,
    split_events,
)
from proxy.http.wire.json_rewrite import Place
from proxy.http.wire.json_splice import dumps, json_object
from proxy.http.wire.sse import DONE, Event, event_bytes

_OBJECT = "chat.completion"
_ROLE = frozenset({"role"})
_OF_PARTS = frozenset({"index", "delta", "finish_reason", "logprobs"})


class ChatFormat(ChoicesFormat):
    """OpenAI's chat completions, as nearly every server and client speaks them."""

    name = "chat"
    path = "/chat/completions"
    held_prefix = "chatcmpl-held-"
    fetch_path = path
    asks_logprobs: Mapping[str, Any] = MappingProxyType({"logprobs": True, "top_logprobs": 5})
    marks = Marks(
        b"[DONE]",
        (b'"finish_reason"', rb'\s*:\s*"[^"]'),
        b'"error"',
        (b'"tool_calls"', rb"\s*:\s*[^\snf]"),
        (b'"function_call"', rb"\s*:\s*[^\snf]"),
    )

    def question(self, payload: Json) -> Question:
        """Return the question in the messages and tools; raises NotScorableError."""
        try:
            return read_question(payload.get("messages"), payload.get("tools"))
        except ValueError as error:  # upstream accepted what we cannot read
            raise NotScorableError("messages", str(error)) from error

    def last_question(self, payload: Json) -> str:
        return last_users_text(payload.get("messages"))

    def user_turns(self, payload: Json) -> list[Any]:
        return turns_in(payload.get("messages"))

    def conversation(self, payload: Json) -> tuple[Any, Any]:
        return payload.get("system"), payload.get("messages")

    def wanted_json(self, payload: Json) -> WantedJson | None:
        return wanted_of(payload.get("response_format"))

    def text_request(self, model: str, instructions: str, text: str) -> Json:
        """Return a request with the instructions as system message and the text as the user's."""
        roles = (("system", instructions), ("user", text))
        return {"model": model, "messages": [{"role": r, "content": c} for r, c in roles]}

    def revision(self, payload: Json, completion: Json, problems: str) -> Json | None:
        """Return `messages` with the reply and its problems at the end, to be revised.

        The problems are the results of its calls, or a message of the user. None for several
        choices, an empty reply, and calls without an id.
        """
        messages, choices = payload.get("messages"), self.choices(completion)
        if not isinstance(messages, list) or len(choices) != 1:
            return None
        message = {k: v for k in ("content", "tool_calls") if (v := choices[0].message.get(k))}
        calls = message.get("tool_calls", [])
        if not message or not all(isinstance(each, dict) and each.get("id") for each in calls):
            return None
        results = [{"role": "tool", "tool_call_id": c["id"], "content": problems} for c in calls]
        answers = results or [{"role": "user", "content": problems}]
        return {"messages": [*messages, {"role": "assistant", **message}, *answers]}

    def message(self, choice: Json) -> Json | None:
        """Return a choice's message, or None if it has none."""
        message = choice.get("message")
        return message if isinstance(message, dict) else None

    def assembler(self) -> Assembler:
        return ChatAssembler()

    def replace_text(self, completion: Json, text: str, ending: Ending) -> Json:
        """Return the completion with `text` as the message of every choice."""
        message = {"role": "assistant", "content": text, "refusal": None}
        choices = [
            {"index": c.index, "message": message, "logprobs": None, "finish_reason": ending}
            for c in self.choices(completion)
        ]
        return {**completion, "choices": choices}

    def choice_with_notice(self, choice: Json, notice: str) -> Json:
        """Return the choice with a notice after its text, or unchanged if it has no text."""
        message = choice["message"]
        if not isinstance(text := message.get("content"), str) or not text:
            return choice
        return {**choice, "message": {**message, "content": text + NOTICE_GAP + notice}}

    def placeholder(self, text: str, *, id: str, created: int, model: str) -> Json:
        """Return a completion whose one choice says `text` and ends by `content_filter`."""
        empty = {"id": id, "object": _OBJECT, "created": created, "model": model}
        return self.replace_text({**empty, "choices": [{"message": {}}]}, text, "content_filter")

    def events(self, completion: Json, payload: Json) -> list[bytes]:
        """Return role and content, the finish, usage if it was requested, and [DONE]."""
        return _events(completion, payload)

    def editable(self, completion: Json) -> Editable:
        """Return the text of each choice, and the calls if there is one choice.

        A refusal counts as the text. Raises KeyError, TypeError or AttributeError for another form.
        """
        parts = Editable()
        choices = completion["choices"]
        for index, choice in enumerate(choices):
            place: Place = ("choices", index)
            message = choice["message"]
            calls = list(_chat_calls(message, (*place, "message"))) if len(choices) == 1 else []
            parts.calls.extend(calls)
            content = text_of(message.get("content")) or message.get("refusal")
            if content or not (message.get("tool_calls") or message.get("function_call")):
                parts.texts.append(EditableText(content or "", _chat_text(choice, place)))
        return parts


def _events(completion: Json, payload: Json) -> list[bytes]:
    """Return two chunks for each choice, content and finish, then usage if wanted, and [DONE].

    Our member is in the last finish.
    """
    left_out = ("choices", "usage", "object", MEMBER)
    head = {k: v for k, v in completion.items() if k not in left_out}
    head["object"] = f"{_OBJECT}.chunk"
    chunks: list[Json] = []
    for choice in completion["choices"]:
        delta = dict(choice["message"])
        if isinstance(calls := delta.get("tool_calls"), list):
            delta["tool_calls"] = [{"index": i, **call} for i, call in enumerate(calls)]
        start = {"index": choice["index"], "delta": delta, "logprobs": choice.get("logprobs")}
        finish = {"index": choice["index"], "delta": {}, "logprobs": None}
        ending = {"finish_reason": choice["finish_reason"]}
        chunks.append({**head, "choices": [{**start, "finish_reason": None}]})
        chunks.append({**head, "choices": [{**finish, **ending}]})
    if MEMBER in completion and chunks:
        chunks[-1][MEMBER] = completion[MEMBER]
    if includes_usage(payload):
        chunks.append({**head, "choices": [], "usage": completion.get("usage")})
    return [*(event_bytes(dumps(chunk)) for chunk in chunks), event_bytes(DONE.encode())]


def _chat_text(choice: Json, place: Place) -> Callable[[str], Changes]:
    """Return the function that gives the changes for a new text of a choice.

    They also remove its refusal, annotations, log-probabilities and a cut ending.
    """

    def changes(text: str) -> Changes:
        """Return what a new text changes in the reply, by place."""
        message = choice["message"]
        changed: Changes = {(*place, "message", "content"): text, **uncut(choice, place)}
        for name, empty in (("refusal", None), ("annotations", [])):
            if message.get(name):
                changed[(*place, "message", name)] = empty
        return changed

    return changes


def _chat_calls(message: Json, place: Place) -> list[EditableCall]:
    """Return the calls in a message as they may be edited; raises KeyError for ambiguous ones."""
    found = []
    for index, call in enumerate(message.get("tool_calls") or ()):
        at: Place = (*place, "tool_calls", index)
        if call.get("custom") and call.get("function"):
            raise KeyError("a call that could be two")
        if isinstance(custom := call.get("custom"), dict):
            found.append(editable_call(custom, "text", (*at, "custom"), "input"))
        else:
            found.append(editable_call(call["function"], "string", (*at, "function"), "arguments"))
    if isinstance(legacy := message.get("function_call"), dict):
        found.append(editable_call(legacy, "string", (*place, "function_call"), "arguments"))
    return found


class ChatAssembler(ChunkAssembler):
    """Puts chunks with `choices[].delta` together; events that are alike are read at once."""

    def __init__(self) -> None:
        super().__init__()
        self._choices: dict[int, Choice] = {}
        self._calls: dict[int, GrowingCalls] = {}  # by choice
        self._alike: AlikeEvents | None = None  # events that add text to a choice
        self._tries = TRIES  # how many more events may serve to learn their form
        self._before_calls: dict[int, bool] | None = None  # by choice: whether it finished

    def add(self, event: Event) -> EventMeaning:
        """Add one event and return what it means.

        The first ones show the form of events of text.
        """
        if self._alike is not None and self._alike.add(event.raw):
            self.reading.clear = event  # as clear as the event that it resembles
            return NOTHING
        meaning = super().add(event)
        if self._tries and meaning is NOTHING and event is self.reading.clear:
            self._tries -= 1
            self._alike = self._learn_from(event)
        return meaning

    def _learn_from(self, event: Event) -> AlikeEvents | None:
        """Return the form of events of text, learnt from this one, or None if it is none.

        The event must say the same to all readers.
        """
        chunk = json_object(event.data or "")
        is_line = event.raw.startswith(b"data: ") and event.raw.endswith(b"\n\n")
        pieces = self._pieces_of(chunk) if chunk and is_line else None
        return None if pieces is None else alike(event.raw, pieces)

    def add_unmarked(self, raw: bytes) -> bytes:
        """Add whole events without a mark at once.

        Return the bytes of those that have to be added.
        """
        if self._alike is None:  # the first events show the form of the others
            first, raw = split_events(raw, LEARNT_FROM)
            if not self._add_plain(first):
                return first + raw
            if not raw:
                return raw
        raw = raw[self.take_alike(raw) :]
        return b"" if not raw or self._add_plain(raw) else raw

    def take_alike(self, raw: bytes) -> int:
        return self._alike.take(raw) if self._alike is not None else 0

    def add_alike(self, raw: bytes) -> bool:
        """Add events if all of them have nothing but text, like an earlier one; return whether."""
        alike = self._alike
        if alike is None or not raw.endswith(alike.after):
            return False
        return alike.add(raw) or alike.take(raw) > 0  # mostly one event

    def _add_plain(self, raw: bytes) -> bool:
        """Add events of one line each at once; return False, and add none, for any other kind."""
        chunks = plain_objects(raw)
        if chunks is None:
            return False
        pieces = None
        for chunk in chunks:
            pieces = self._pieces_of(chunk)
            if pieces is None:
                self._add_chunk(chunk)
            else:
                pieces.append(chunk["choices"][0]["delta"]["content"])
        if pieces is not None and self._alike is None and not self.reading.is_strict:
            self._alike = alike(raw[raw.rfind(b"\n\n", 0, -2) + 2 :], pieces)
        return True

    def _pieces_of(self, chunk: Json) -> Pieces | None:
        """Return the growing text that a chunk continues, if it does nothing else, or None."""
        try:
            (part,) = chunk["choices"]
            delta = part["delta"]
            if len(delta) != 1:  # checked, since an exception takes far longer
                return None
            ((name, text),) = delta.items()
            pieces = self._choices[part["index"]].message["content"]
        except (AttributeError, KeyError, TypeError, ValueError):
            return None
        is_text = name == "content" and type(text) is str and type(pieces) is Pieces
        says_more = part.get("logprobs") is not None or chunk.get("usage") is not None
        return pieces if is_text and not says_more else None

    def add_parts(self, parts: list[Any]) -> EventMeaning:
        """Add the `choices` of a chunk: deltas of messages; return what they mean.

        Parts that cannot be read are remembered in `has_unread`.
        """
        finished: list[int] = []
        calls_tool, is_unread = any(map(_calls_tool, parts)), False
        if calls_tool and self._before_calls is None:
            choices = self._choices.values()
            self._before_calls = {c.index: c.finish_reason is not None for c in choices}
        for position, part in enumerate(parts):
            if not isinstance(part, dict) or _is_unread(part):
                is_unread = self.has_unread = True
                continue
            index = index_of(part, position)
            if (choice := self._choices.get(index)) is None:
                choice = self._choices[index] = Choice(index)
            try:
                is_unread = not self._extend(choice, part) or is_unread
            except RecursionError:  # no real answer is nested so deeply
                is_unread = True
            reason = part.get("finish_reason")  # some servers send empty ones before it
            if reason and isinstance(reason, str) and choice.finish_reason is None:
                choice.finish_reason = reason
                finished.append(index)
        if finished or calls_tool or is_unread:
            return EventMeaning(tuple(finished), calls_tool=calls_tool, is_unread=is_unread)
        return NOTHING

    def _extend(self, choice: Choice, part: Mapping[str, Any]) -> bool:
        """Add a part of a chunk to its choice: text, calls and log-probabilities.

        Returns False where clients would not agree on the call that it extends.
        """
        delta, logprobs = part.get("delta"), part.get("logprobs")
        if logprobs is not None and isinstance(logprobs, dict):
            choice.logprobs = choice.logprobs or {}
            merge(choice.logprobs, logprobs)
        if (
            not delta
            or not isinstance(delta, dict)
            or not (delta.get("content") or _has_more_than_role(delta))
        ):
            delta = _beside_delta(part, choice) or delta
            if not delta or not isinstance(delta, dict):
                return True
        is_clear = True
        if "tool_calls" in delta:
            if tool_calls := delta["tool_calls"]:
                calls = self._calls.setdefault(choice.index, GrowingCalls())
                is_clear = calls.merge(tool_calls if isinstance(tool_calls, list) else [tool_calls])
            delta = {key: value for key, value in delta.items() if key != "tool_calls"}
        merge(choice.message, delta)
        return is_clear

    def choices(self, only: Collection[int] | None = None) -> list[Choice]:
        indices = self._choices if only is None else self._choices.keys() & only
        return [self._whole(self._choices[index]) for index in sorted(indices)]

    def _whole(self, choice: Choice) -> Choice:
        """Return a choice as it is now, with its texts joined and its calls in order."""
        message = join_texts(choice.message)
        calls = self._calls.get(choice.index) or GrowingCalls()
        if calls:
            message["tool_calls"] = [join_texts(calls[index]) for index in sorted(calls)]
        legacy = choice.message.get("function_call")
        whole = Choice(choice.index, message, choice.finish_reason, join_texts(choice.logprobs))
        if calls or legacy:
            whole.names = _other_names([*calls.values(), legacy])
        return whole

    def completion(self) -> Json:
        """Return the completion that the same reply would have been without a stream."""
        choices = [
            {
                "index": choice.index,
                "message": {"role": "assistant", "content": None, **choice.message},
                "logprobs": choice.logprobs,
                "finish_reason": choice.finish_reason,
            }
            for choice in self.choices()
        ]
        usage = {} if self._usage is None else {"usage": self._usage}
        return {**self._head, "object": _OBJECT, "choices": choices, **usage}

    def continue_stream(self, completion: Json, payload: Json) -> list[bytes]:
        """Return events that finish the choices which had not finished before the first call.

        `completion` has what they end with. A role is not repeated, because accumulators would
        append it. If the completion has fewer choices than were begun, its first one is used for
        each of the others too.
        """
        begun = self._before_calls or {}
        by_index = {choice["index"]: choice for choice in completion["choices"]}
        first = next(iter(by_index.values()))
        choices = []
        for index in sorted(by_index.keys() | begun.keys()):
            if begun.get(index):
                continue
            choice = by_index.get(index, first)
            message = dict(choice["message"])
            if index in begun:
                message.pop("role", None)
            choices.append({**choice, "index": index, "message": message})
        return _events({**completion, "choices": choices}, payload)


def _other_names(calls: list[Any]) -> Mapping[str, tuple[str, ...]]:
    """Return the other names by which a call's deltas may be read, by its name in the message.

    Calls with the same name share them: a reading that is safe for one may not be so for the other.
    Calls that came in one delta are left out.
    """
    names: dict[str, tuple[str, ...]] = {}
    for called_name in names_in(calls):
        name, *others = called_name.readings()
        names[name] = tuple(dict.fromkeys((*names.get(name, ()), *others)))
    return names


def _beside_delta(part: Mapping[str, Any], choice: Choice) -> Any:
    """Return what a part without a delta adds, as a delta, or None if it adds nothing.

    Some servers send `message`, `text` or `content` in its place. A text that begins with all the
    text before it repeats that, so only the rest is new.
    """
    delta: Any = part.get("message") or part.get("text") or part.get("content")
    if delta is None:
        return None
    if isinstance(delta, str):
        delta = {"content": delta}
    if not isinstance(delta, dict) or not isinstance(delta.get("content"), str):
        return delta
    before = join_texts(choice.message).get("content") or ""
    if isinstance(before, str) and delta["content"].startswith(before):
        return {**delta, "content": delta["content"][len(before) :]}
    return delta


def _has_more_than_role(delta: Json) -> bool:
    """Return whether a delta has a member beside its role that is not empty."""
    return any(map(delta.get, delta.keys() - _ROLE))


def _calls_tool(part: Any) -> bool:
    """Return whether a choice's part has a piece of a tool call."""
    delta = part.get("delta") if isinstance(part, dict) else None
    return isinstance(delta, dict) and has_call(delta)


def _is_unread(part: Json) -> bool:
    """Return whether a choice's part may hold a call in a member that is not read."""
    delta = part.get("delta")
    if delta and not isinstance(delta, dict):
        return True
    unknown_keys = part.keys() - _OF_PARTS
    return bool(unknown_keys) and has_call(
        {key: part[key] for key in unknown_keys} | {"": part.get("message")}
    )
