"""A maker of the README's picture of one reply: `python scripts/pictures/reply_picture.py [FILE]`.

The proxy is started and asked as in the README; only long lines are cut.
"""

from __future__ import annotations

import json
import re
import shutil
import socket
import subprocess
import sys
import tempfile
from io import StringIO
from pathlib import Path
from typing import Any

import httpx
from rich.console import Console
from rich.text import Text

ROOT = Path(__file__).parents[2]
PORT, DESK_PORT = "8000", "8001"  # as in the README
URL = f"http://127.0.0.1:{PORT}/v1/chat/completions"
QUESTION = "Is 91 a prime number?"
WIDTH = 102
LEFT_OUT = (
    *("date", "server", "openai-version", "openai-organization", "openai-processing-ms"),
    *("x-pinocchio-overhead-ms", "x-pinocchio-score-ms"),  # they depend on the machine
)


def free_port() -> int:
    """Return a port of loopback that is free at the moment."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        port: int = listening.getsockname()[1]
        return port


def greeting_and_reply() -> tuple[list[str], httpx.Response]:
    """Run `pinocchio serve` and ask it; return its lines until it is ready, and one reply.

    Of nine replies it is the one with the median overhead. It listens on free ports, shown as the
    README's: another proxy of this machine may have those.
    """
    port = free_port()
    with tempfile.TemporaryDirectory() as folder:
        shutil.copy(ROOT / "proxy.yaml", folder)
        process = subprocess.Popen(
            [sys.executable, "-m", "pinocchio", "serve", "--port", str(port)],
            cwd=folder,
            env={"PYTHONPATH": str(ROOT), "PYTHONUNBUFFERED": "1"},
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )
        try:
            assert process.stdout is not None
            greeting: list[str] = []
            for line in process.stdout:
                line = line.replace(str(port), PORT)
                line = re.sub(r"(review desk http://127\.0\.0\.1):\d+", rf"\1:{DESK_PORT}", line)
                greeting.append(line.rstrip())
                if line.startswith("Ready"):
                    break
            url = URL.replace(PORT, str(port))
            body = {"model": "demo", "messages": [{"role": "user", "content": QUESTION}]}
            replies = [httpx.post(url, json=body, trust_env=False, timeout=30) for _ in range(9)]
            replies.sort(key=lambda reply: float(reply.headers["x-pinocchio-overhead-ms"]))
            return greeting, replies[len(replies) // 2]
        finally:
            process.terminate()
            process.wait(20)


def drawn(greeting: list[str], reply: httpx.Response) -> Console:
    """Return a console that recorded the picture: the server's lines, the request and the reply."""
    console = Console(record=True, width=WIDTH, file=StringIO(), highlight=False)

    def print_line(text: str, style: str = "", marked: str = "") -> None:
        """Print one line in a style, cut to the width, with the words `marked` in yellow."""
        line = Text(text, style=style)
        if marked:
            line.highlight_words([marked], "bold yellow")
        console.print(line, no_wrap=True, crop=True)

    def ask(command: str) -> None:
        """Print a shell prompt with the command."""
        console.print(Text.assemble(("$ ", "green"), command), no_wrap=True)

    ask("scripts/serve")
    for line in greeting:
        print_line(re.sub("token=.*", "token=..", line))
    ask(f"curl -si {URL} -H 'content-type: application/json' \\")
    body = json.dumps({"model": "demo", "messages": [{"role": "user", "content": QUESTION}]})
    print_line(f"    -d '{body}'")
    print_line("HTTP/1.1 200 OK")
    confidence = reply.headers["x-pinocchio-confidence"]
    for name, value in reply.headers.items():
        if name not in LEFT_OUT:
            is_ours = name.startswith("x-pinocchio")
            print_line(f"{name}: {value}", "cyan" if is_ours else "", confidence if is_ours else "")
    completion: dict[str, Any] = reply.json()
    message, found = completion["choices"][0]["message"], completion["pinocchio"]

    def members(*names: str) -> str:
        """Return these values of the reply's `pinocchio` object as JSON, without the braces."""
        return json.dumps({name: found[name] for name in names})[1:-1]

    print_line("")
    print_line('{"id": "chatcmpl-demo-..", "object": "chat.completion", "model": "demo",')
    print_line(' "choices": [{"index": 0, "message": {"role": "assistant",')
    print_line(f'   "content": {json.dumps(message["content"])}, ..}}, ..}}], ..,')
    print_line(
        f' "pinocchio": {{{members("confidence", "status", "basis", "action")},', "cyan", confidence
    )
    print_line(f"   {members('policy', 'mode', 'would_action')},", "cyan")
    print_line(f"   {members('calibrator')},", "cyan")
    because = json.dumps(found["choices"][0]["because"])
    print_line(f'   "choices": [{{"index": 0, "because": {because}, ..}}]}}}}', "cyan", because)
    return console


def main() -> None:
    """Write the picture as SVG to the file named on the command line, or to `.github/reply.svg`."""
    path = Path(sys.argv[1]) if len(sys.argv) > 1 else ROOT / ".github" / "reply.svg"
    drawn(*greeting_and_reply()).save_svg(str(path), title="one reply")
    print(path.name)


if __name__ == "__main__":
    main()
