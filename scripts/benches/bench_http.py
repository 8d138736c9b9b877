"""HTTP/1.1 for both ends of the peer benchmark: requests, canned replies, one small reader.

Load and upstream must cost only a fraction of the target between them, so both are raw asyncio
protocols, and this reader supports no more than it needs: one message at a time, a body by
content-length or in chunks. It is strict: a body counts only once it has ended.
"""

from __future__ import annotations

import json
from random import Random

DELTAS = 60
MESSAGES = 10
SHORT, LONG, EMBEDDING, BIG = "bench", "bench-long", "bench-embedding", "bench-big"
SPACED = "bench-spaced"  # a model whose deltas come one at a time
VARIED = "bench-varied"  # a model with another reply each time
_OTHERS = """
    river bridge window market doctor engine garden winter summer paper water music table number
    letter island forest farmer planet copper silver bottle circle square degree kilometre second
    minute hour week month year price weight length height colour sound light shadow corner street
    village city country ocean desert mountain valley morning evening noon night north south east
    west left right above below between through during against without around because although
    while until whether either neither every several seven eleven twelve twenty thirty hundred
    thousand half double quick slow heavy empty narrow broad simple early late
"""

CHAT, EMBED = "/v1/chat/completions", "/v1/embeddings"
QUESTION = "A train leaves at 23:50 and needs 25 minutes. When, and on what day, does it arrive?"
SENTENCE = "It leaves ten minutes before midnight, so fifteen of the minutes lie after midnight. "
LAST_SENTENCE = "At 00:15 the next day."
ANSWER = SENTENCE * 8 + LAST_SENTENCE
BIG_ANSWER = SENTENCE * (2**20 // len(SENTENCE)) + LAST_SENTENCE
STAMP = "@%020d@"  # upstream's monotonic clock in nanoseconds, in the first spaced delta
WORDS = ["when it arrives "] * DELTAS
VARIANTS = 2_003  # variants of questions and replies; a scorer caches 1,024 questions


class Reader:
    """A reader of one side's messages; `head` is in lower case, `body` without chunk framing."""

    __slots__ = ("_chunks", "_has_head", "_is_chunked", "_length", "_waiting", "body", "head")

    def __init__(self) -> None:
        self.reset()

    def reset(self) -> None:
        """Forget the message that was read, to read the next one."""
        self.head = b""
        self.body = bytearray()
        self._waiting = b""
        self._has_head = False

    def feed(self, data: bytes) -> bool:
        """Read data and return whether the message is complete.

        Raises ValueError for data that is no message, or more than one.
        """
        if not self._has_head:
            data = self._waiting + data
            end = data.find(b"\r\n\r\n")
            if end < 0:
                self._waiting = data
                return False
            self._read_head(data[: end + 2].lower())
            data = data[end + 4 :]
        if self._is_chunked:
            return self._feed_chunks(data)
        self.body += data
        if len(self.body) > self._length:
            raise ValueError(f"{len(self.body)} bytes of a body of {self._length}")
        return len(self.body) == self._length

    def _read_head(self, head: bytes) -> None:
        """Keep the head, and read from it how long the body is.

        Raises ValueError for a reply without length and chunks.
        """
        self.head, self._has_head, self._waiting = head, True, b""
        self._is_chunked = b"\r\ntransfer-encoding: chunked" in head
        at = head.find(b"\r\ncontent-length:")
        self._length = 0 if at < 0 else int(head[at + 17 : head.index(b"\r\n", at + 17)])
        is_reply = head.startswith(b"http/")
        if is_reply and at < 0 and not self._is_chunked:
            raise ValueError(f"a reply whose end cannot be told: {head!r}")

    def _feed_chunks(self, data: bytes) -> bool:
        """Add complete chunks to the body, and return whether the last one has come.

        Raises ValueError for bytes after it.
        """
        data = self._waiting + data
        at = 0
        while (end := data.find(b"\r\n", at)) >= 0:
            size = int(data[at:end].partition(b";")[0], 16)
            if len(data) < end + 2 + size + 2:
                break
            if size == 0:
                if len(data) != end + 4:
                    raise ValueError(f"bytes after the last chunk: {data[end:]!r}")
                return True
            self.body += data[end + 2 : end + 2 + size]
            at = end + 2 + size + 2
        self._waiting = data[at:]
        return False


def chunk(data: bytes) -> bytes:
    """Return the data as one chunk of a chunked body; b"" gives the last chunk."""
    return b"%x\r\n%b\r\n" % (len(data), data)


def conversation(messages: int) -> list[dict[str, str]]:
    """Return this many messages of about 150 characters, the last from the user."""
    roles = ("user", "assistant") if messages % 2 else ("assistant", "user")
    return [
        {"role": roles[i % 2], "content": f"{i}. {SENTENCE if i % 2 else QUESTION} {SENTENCE[:64]}"}
        for i in range(messages)
    ]


def other_words(text: str, number: int) -> str:
    """Return the text's words in another order and some replaced, one text for each number.

    So a scorer's cache of a question's words does not help with the next.
    """
    chosen, others = Random(number), _OTHERS.split()
    words = [chosen.choice(others) if chosen.random() < 0.2 else word for word in text.split()]
    chosen.shuffle(words)
    return " ".join(words)


def request(
    path: str,
    model: str,
    *,
    messages: int = MESSAGES,
    is_stream: bool = False,
    headers: tuple[tuple[str, str], ...] = (),
    variant: int | None = None,
) -> bytes:
    """Return the bytes of a request, head and body; targets differ only in `headers`.

    `variant` gives a conversation in other words for each number. For the path of embeddings the
    body has an `input` and no messages.
    """
    turns = conversation(messages)
    if variant is not None:
        turns = [{**turn, "content": other_words(turn["content"], variant)} for turn in turns]
    payload: dict[str, object] = {"model": model, "messages": turns}
    if path == EMBED:
        payload = {"model": model, "input": QUESTION}
    elif is_stream:
        payload["stream"] = True
    body = json.dumps(payload).encode()
    has_key = any(name.lower() == "authorization" for name, _ in headers)
    lines = [
        f"POST {path} HTTP/1.1",
        "Host: 127.0.0.1",
        "Accept: */*",
        "User-Agent: bench",
        "Content-Type: application/json",
        *(() if has_key else ("Authorization: Bearer bench",)),
        *(f"{name}: {value}" for name, value in headers),
        f"Content-Length: {len(body)}",
    ]
    return "\r\n".join([*lines, "", ""]).encode() + body


# --- replies of upstream -------------------------------------------------------------------------

HEADERS = (
    b"content-type: %b\r\nx-request-id: req_bench\r\nopenai-processing-ms: 12\r\n"
    b"openai-version: 2020-10-01\r\nx-ratelimit-remaining-requests: 9999\r\n"
)


def json_reply(payload: object) -> bytes:
    """Return the bytes of a reply with this JSON and upstream's usual headers."""
    body = json.dumps(payload).encode()
    head = b"HTTP/1.1 200 OK\r\n" + HEADERS % b"application/json"
    return head + b"content-length: %d\r\n\r\n" % len(body) + body


def completion(content: str) -> dict[str, object]:
    """Return a chat completion whose only choice has this content."""
    message = {"role": "assistant", "content": content, "refusal": None}
    usage = {"prompt_tokens": 323, "completion_tokens": 150, "total_tokens": 473}
    choice = {"index": 0, "message": message, "logprobs": None, "finish_reason": "stop"}
    return {
        "id": "chatcmpl-bench",
        "object": "chat.completion",
        "created": 1767225600,
        "model": "bench",
        "choices": [choice],
        "usage": usage,
    }


def embedding() -> dict[str, object]:
    """Return a reply with one embedding of 128 numbers."""
    vector = [round(0.001 * i, 3) for i in range(128)]
    return {
        "object": "list",
        "model": "bench",
        "data": [{"object": "embedding", "index": 0, "embedding": vector}],
        "usage": {"prompt_tokens": 23, "total_tokens": 23},
    }


def event(delta: dict[str, str], finish_reason: str | None = None) -> bytes:
    """Return one event of a stream, with this delta and finish reason."""
    data = {
        "id": "chatcmpl-bench",
        "object": "chat.completion.chunk",
        "created": 1767225600,
        "model": "bench",
        "choices": [{"index": 0, "delta": delta, "logprobs": None, "finish_reason": finish_reason}],
    }
    return b"data: " + json.dumps(data).encode() + b"\n\n"


def events() -> list[bytes]:
    """Return the events of a stream: 60 deltas, the chunk that finishes, and `[DONE]`."""
    deltas = [event({"role": "assistant", "content": WORDS[0]})]
    deltas += [event({"content": word}) for word in WORDS[1:]]
    return [*deltas, event({}, "stop"), b"data: [DONE]\n\n"]
