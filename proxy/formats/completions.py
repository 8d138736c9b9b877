"""`/v1/completions`, the format before chat: a prompt, and the text that continues it."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from types import MappingProxyType
from typing import Any

from calibrator import NotScorableError, Question, read_question
from proxy.formats.base.edits import Editable, EditableText, WantedJson, uncut, wanted_of
from proxy.formats.base.format import (
    MEMBER,
    MOST_TOKENS,
    NOTHING,
    NOTICE_GAP,
    UNREAD,
    Assembler,
    Choice,
    Ending,
    EventMeaning,
    Json,
    Marks,
)
from proxy.formats.base.openai import ChoicesFormat, ChunkAssembler, includes_usage
from proxy.formats.events.called import has_call
from proxy.formats.events.merging import index_of, join_texts, merge
from proxy.http.wire.json_rewrite import Place
from proxy.http.wire.json_splice import dumps
from proxy.http.wire.sse import DONE, event_bytes

_OBJECT = "text_completion"  # of chunks too


class CompletionsFormat(ChoicesFormat):
    """OpenAI's legacy completions, which many servers of open models still speak."""

    name = "completions"
    path = "/completions"
    held_prefix = "cmpl-held-"
    fetch_path = "/chat/completions"  # the API has no path to fetch a completion, but this one
    asks_logprobs: Mapping[str, Any] = MappingProxyType({"logprobs": 5})
    marks = Marks(b"[DONE]", (b'"finish_reason"', rb'\s*:\s*"[^"]'), b'"error"')

    def question(self, payload: Json) -> Question:
        """Return the prompt as a user's message; raises NotScorableError.

        Prompts that are echoed, have a suffix, are tokens or several cannot be scored.
        """
        if payload.get("echo") is True:
            raise NotScorableError("echo", "the prompt is part of the answer")
        if payload.get("suffix"):
            raise NotScorableError("suffix", "the answer belongs between a prompt and a suffix")
        return read_question([{"role": "user", "content": _prompt(payload.get("prompt"))}])

    def last_question(self, payload: Json) -> str:
        """Return the texts of the prompt, joined by an empty line."""
        prompt = payload.get("prompt")
        prompts = prompt if isinstance(prompt, list) else [prompt]
        return "\n\n".join(text for text in prompts if isinstance(text, str))

    def user_turns(self, payload: Json) -> list[Any]:
        prompt = payload.get("prompt")
        return [] if prompt is None else [prompt]

    def conversation(self, payload: Json) -> tuple[Any, Any]:
        return payload.get("system"), payload.get("prompt")

    def wanted_json(self, payload: Json) -> WantedJson | None:
        return wanted_of(payload.get("response_format"))

    def editable(self, completion: Json) -> Editable:
        """Return the text of each choice as it may be edited; raises KeyError without one."""

        def text_of(index: int, choice: Json) -> EditableText:
            """Return a choice's text with the changes that a new one makes."""
            place: Place = ("choices", index)
            return EditableText(
                choice["text"], lambda text: {(*place, "text"): text, **uncut(choice, place)}
            )

        return Editable([text_of(index, each) for index, each in enumerate(completion["choices"])])

    def text_request(self, model: str, instructions: str, text: str) -> Json:
        """Return a request whose prompt is the instructions and the text."""
        prompt = f"{instructions}\n\n{text}\n\n"
        return {"model": model, "prompt": prompt, "max_tokens": MOST_TOKENS}

    def without_effects(self, payload: Json) -> Json | None:
        """Return the members to change so that one choice is made and nothing is stored.

        Empty if the request needs no change.
        """
        fields = {"best_of": 1} if payload.get("best_of") else {}
        return {**(super().without_effects(payload) or {}), **fields}

    def message(self, choice: Json) -> Json | None:
        """Return a choice's text as a message; None without a text, or with what seems a call."""
        text = choice.get("text")
        is_read = isinstance(text, str) and not has_call(choice)  # this format has no calls
        return {"role": "assistant", "content": text} if is_read else None

    def assembler(self) -> Assembler:
        return CompletionsAssembler()

    def replace_text(self, completion: Json, text: str, ending: Ending) -> Json:
        """Return the completion with `text` as the text of every choice."""
        choices = [
            {"text": text, "index": c.index, "logprobs": None, "finish_reason": ending}
            for c in self.choices(completion)
        ]
        return {**completion, "choices": choices}

    def choice_with_notice(self, choice: Json, notice: str) -> Json:
        text = choice["text"]
        return {**choice, "text": text + NOTICE_GAP + notice} if text else choice

    def placeholder(self, text: str, *, id: str, created: int, model: str) -> Json:
        """Return a completion whose one choice says `text` and ends by `content_filter`."""
        empty = {"id": id, "object": _OBJECT, "created": created, "model": model}
        return self.replace_text({**empty, "choices": [{"text": ""}]}, text, "content_filter")

    def events(self, completion: Json, payload: Json) -> list[bytes]:
        return _events(completion, payload)


def _events(completion: Json, payload: Json) -> list[bytes]:
    """Return a chunk with each whole choice, the usage if it was requested, and [DONE].

    Our member is in the last choice's chunk.
    """
    head = {k: v for k, v in completion.items() if k not in ("choices", "usage", MEMBER)}
    chunks: list[Json] = [{**head, "choices": [c]} for c in completion["choices"]]
    if MEMBER in completion and chunks:
        chunks[-1][MEMBER] = completion[MEMBER]
    if includes_usage(payload):
        chunks.append({**head, "choices": [], "usage": completion.get("usage")})
    return [*(event_bytes(dumps(chunk)) for chunk in chunks), event_bytes(DONE.encode())]


def _prompt(prompt: Any) -> str:
    """Return a prompt's one text, also from a list of one; raises NotScorableError for others."""
    if isinstance(prompt, list) and len(prompt) == 1 and not isinstance(prompt[0], int):
        [prompt] = prompt
    if isinstance(prompt, str):
        return prompt
    if not isinstance(prompt, list) or not prompt:
        raise NotScorableError("prompt", "the request has no prompt that can be read")
    if all(isinstance(part, int) for part in prompt):
        raise NotScorableError("tokens", "the prompt is a list of tokens, not a text")
    raise NotScorableError("several_prompts", "the request has several prompts")


def _text_of(part: Json) -> Any:
    """Return a choice's `text`, or the `content` of a delta or message in its place, or None.

    Some servers send the parts of a chat here.
    """
    if part.get("text"):
        return part["text"]
    for key in ("delta", "message"):
        if isinstance(message := part.get(key), dict) and message.get("content"):
            return message["content"]
    return part.get("text")


class CompletionsAssembler(ChunkAssembler):
    """Puts chunks with `choices[].text` together."""

    def __init__(self) -> None:
        super().__init__()
        self._choices: dict[int, Json] = {}  # text and logprobs, still growing
        self._reasons: dict[int, str] = {}

    def add_parts(self, parts: list[Any]) -> EventMeaning:
        """Add the `choices` of a chunk: pieces of texts; return what they mean.

        A part that may hold a call makes the event unread.
        """
        finished: list[int] = []
        for position, part in enumerate(parts):
            if not isinstance(part, dict) or has_call(part):
                return self.note_unread(UNREAD)
            index = index_of(part, position)
            delta = {"text": _text_of(part), "logprobs": part.get("logprobs")}
            delta = {key: value for key, value in delta.items() if value is not None}
            try:
                merge(self._choices.setdefault(index, {}), delta)
            except RecursionError:  # no real answer is nested so deeply
                return UNREAD
            reason = part.get("finish_reason")  # some servers send empty ones before it
            if reason and isinstance(reason, str) and index not in self._reasons:
                self._reasons[index] = reason
                finished.append(index)
        return EventMeaning(tuple(finished)) if finished else NOTHING

    def choices(self, only: Collection[int] | None = None) -> list[Choice]:
        indices = self._choices if only is None else self._choices.keys() & only
        return [self._whole(index, join_texts(self._choices[index])) for index in sorted(indices)]

    def _whole(self, index: int, grown: Json) -> Choice:
        """Return a choice from its joined text and log-probabilities."""
        text, logprobs = grown.get("text"), grown.get("logprobs")
        return Choice(
            index,
            {"role": "assistant", "content": text if isinstance(text, str) else ""},
            self._reasons.get(index),
            logprobs if isinstance(logprobs, dict) else None,
        )

    def completion(self) -> Json:
        """Return the completion that the same reply would have been without a stream."""
        choices = [
            {
                "text": choice.message["content"],
                "index": choice.index,
                "logprobs": choice.logprobs,
                "finish_reason": choice.finish_reason,
            }
            for choice in self.choices()
        ]
        usage = {} if self._usage is None else {"usage": self._usage}
        return {"object": _OBJECT, **self._head, "choices": choices, **usage}

    def continue_stream(self, completion: Json, payload: Json) -> list[bytes]:
        """Return the whole stream, since this format has no tool calls to wait for."""
        return _events(completion, payload)
