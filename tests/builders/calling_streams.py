"""A streamed answer with a text and a tool call, in each format that has tool calls."""

from __future__ import annotations

from tests.builders.scripted_streams import CHAT, SURE, TEXT, Json, stream_request
from tests.servers import messages_upstream as messages
from tests.servers import responses_upstream as responses

CALLING: dict[str, tuple[str, list[bytes], int, bytes]] = {
    # path, events, how many of them come before the call, a word of the text
    CHAT: (CHAT, SURE, len(TEXT), b"look. "),
    "/v1/responses": (
        "/v1/responses",
        responses.events_of(
            responses.response_to({"model": "tools", "input": "p=0.9", "tools": []}, "resp_1")
        ),
        9,
        b"Let me look",
    ),
    "/v1/messages": (
        "/v1/messages",
        messages.events_for(
            {
                "id": "msg_1",
                "type": "message",
                "role": "assistant",
                "model": "m-2099",
                "content": [
                    {"type": "text", "text": "Let me look"},
                    {"type": "tool_use", "id": "toolu_1", "name": "get_weather"}
                    | {"input": {"city": "p=0.9"}},
                ],
                "stop_reason": "tool_use",
                "stop_sequence": None,
                "usage": {"input_tokens": 2, "output_tokens": 3},
            }
        ),
        7,
        b" look",
    ),
}


def calling_body(path: str) -> Json:
    """Return a request body that every path accepts."""
    return stream_request() | {"input": "do it", "max_tokens": 9}
