"""A stand-in for the webhooks of Slack and Teams that prints each message with its buttons.

    .venv/bin/python examples/review/chat_endpoint.py            # listens on 127.0.0.1:8090
    .venv/bin/pinocchio serve --config examples/review/chat.yaml
    examples/curl.sh                                             # its refund is held

Then open a button's address in a browser, which is what pressing the button does.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

PORT = int(sys.argv[1]) if len(sys.argv) > 1 else 8090


def lines_of(message: dict[str, Any]) -> Iterator[str]:
    """Yield the title, the facts and the buttons of a message in the shape of Slack or Teams."""
    if "blocks" in message:
        yield message["text"]
        for block in message["blocks"]:
            for field in block.get("fields", []):
                yield field["text"].replace("*", "").replace("\n", ": ")
            if "text" in block and block != message["blocks"][0]:
                yield block["text"]["text"].replace("_", "", 2)
            for button in block.get("elements", []):
                yield f"[{button['text']['text']}] {button['url']}"
        return
    card = message["attachments"][0]["content"]
    yield card["fallbackText"]
    for line in card["body"]:
        yield "".join(run["text"] for run in line.get("inlines", []))
    for action in card["actions"]:
        yield f"[{action['title']}] {action['url']}"


class Endpoint(BaseHTTPRequestHandler):
    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["content-length"])))
        lines = [line for line in lines_of(body) if line]
        print(f"\nto {self.path[1:]}: " + "\n  ".join(lines), flush=True)
        self.send_response(200)
        self.send_header("content-length", "0")
        self.end_headers()

    def log_message(self, *_: Any) -> None:
        """Log nothing."""


if __name__ == "__main__":
    with ThreadingHTTPServer(("127.0.0.1", PORT), Endpoint) as server:
        print(f"listens on http://127.0.0.1:{server.server_port}", flush=True)
        server.serve_forever()
