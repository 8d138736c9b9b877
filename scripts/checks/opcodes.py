"""The counted work of a warm request by room.

scripts/bench opcodes [--enforce] [--keys] [--json]

    room        bytecodes  calls

The counts are bytecodes and Python calls of the event loop, for a whole reply and for a stream,
observed or under an enforced policy; below them are the reads and writes of its thread, counted by
Linux. The scorer is a calibrator that costs nothing. The log line of each request and the thread
that writes rows are left out. The counts do not depend on how busy the machine is.
"""

from __future__ import annotations

import argparse
import json
import logging
import sys
import tempfile
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import structlog

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT))

from scripts.checks.counted_work import NAMES, CountedWork  # noqa: E402
from tests.running.client_keys import OWN_KEY, bearer, make_key, wait_until_known  # noqa: E402
from tests.running.live_proxy import OBSERVE, LiveProxy, question  # noqa: E402
from tests.servers.faulty_upstream import FaultyUpstream  # noqa: E402

WARM_UP, REQUESTS = 5, 20
TURN = "What somebody says in a conversation with a model has a sentence or two. " * 2
DELTAS = 60
ENFORCE = """
version: 1
name: bench
mode: enforce
rules:
  - {name: tools, when: {tools: any, confidence: {below: 0.95}}, then: {hold: {queue: q}}}
  - {name: unsure, when: {confidence: {below: 0.3}}, then: {hold: {queue: q}}}
default: deliver
"""
Figures = Mapping[str, Mapping[str, float]]


def conversation() -> dict[str, Any]:
    """Return the body of a request with 11 messages; the fake scorer gives its reply 0.7."""
    turns = [
        {"role": "assistant" if number % 2 else "user", "content": f"Turn {number}. {TURN}"}
        for number in range(10)
    ]
    return {"model": "ok", "messages": [*turns, {"role": "user", "content": "p=0.7"}]}


def streamed() -> dict[str, Any]:
    """Return the body of a streamed request, whose answer comes in 60 deltas."""
    head = {"id": "c-1", "object": "chat.completion.chunk", "created": 1, "model": "m"}

    def chunk(delta: dict[str, Any], reason: str | None = None) -> dict[str, Any]:
        """Return one chunk of the stream with this delta and finish reason."""
        return {**head, "choices": [{"index": 0, "delta": delta, "finish_reason": reason}]}

    deltas = [chunk({"content": f"word{number} "}) for number in range(DELTAS - 1)]
    chunks = [chunk({"role": "assistant", "content": ""}), *deltas, chunk({"content": "p=0.7"})]
    return question("?", "told", stream=True, reply=[*chunks, chunk({}, "stop")])


def system_calls(thread: int) -> tuple[int, int]:
    """Return the (reads, writes) of a thread so far; (0, 0) if the system does not count them."""
    with suppress(OSError):
        lines = Path(f"/proc/self/task/{thread}/io").read_text().splitlines()
        counts = dict(line.split(": ") for line in lines)
        return int(counts["syscr"]), int(counts["syscw"])
    return 0, 0


def measured(proxy: LiveProxy, counted: CountedWork, body: dict[str, Any]) -> Figures:
    """Return the counts of one request by room, as `{room: {"bytecodes": .., "calls": ..}}`.

    The key `system` has `reads` and `writes` of the event loop's thread. `body` is posted 20 times
    after a warm-up, and each reply must have the confidence 0.7.
    """

    def ask(times: int) -> None:
        """Post the body this many times, and check the confidence of each reply."""
        for _ in range(times):
            reply = proxy.http.post("/v1/chat/completions", json=body)
            assert b'"confidence":0.7' in reply.content

    thread = proxy._thread.native_id or 0
    ask(WARM_UP)
    before = system_calls(thread)
    with counted.counting() as work:
        ask(REQUESTS)
    reads, writes = (
        (after - first) / REQUESTS
        for first, after in zip(before, system_calls(thread), strict=True)
    )
    counts = {"bytecodes": work.bytecodes, "calls": work.calls}
    by_room = {name: work.by_room(each, REQUESTS) for name, each in counts.items()}
    rooms = {room: {name: by_room[name][room] for name in counts} for room in NAMES}
    return {**rooms, "system": {"reads": reads, "writes": writes}}


def table(title: str, figures: Figures) -> str:
    """Return the counts of all rooms as lines of text below the title, with shares and a sum."""
    lines = [f"{title:<28}{'bytecodes':>10}{'calls':>8}"]
    rooms = {room: figures[room] for room in NAMES}
    total = {name: sum(each[name] for each in rooms.values()) for name in ("bytecodes", "calls")}
    for room, each in {**rooms, "all": total}.items():
        share = f"{each['bytecodes'] / total['bytecodes']:.0%}"
        numbers = f"{each['bytecodes']:>10,.0f}{each['calls']:>8,.0f}"
        lines.append(f"  {room:<20}{share:>6}{numbers}")
    system = figures["system"]
    lines.append(f"  {system['reads']:.1f} reads, {system['writes']:.1f} writes")
    return "\n".join(lines)


def main() -> None:
    """Print the counts of a whole reply and of a stream, as tables or as JSON."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--enforce", action="store_true", help="under a policy that is enforced")
    parser.add_argument("--keys", action="store_true", help="client keys are required")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.WARNING))
    bodies: dict[str, Callable[[], dict[str, Any]]] = {
        "whole, 11 messages": conversation,
        f"a stream of {DELTAS} deltas": streamed,
    }
    counted = CountedWork()
    with FaultyUpstream() as upstream, tempfile.TemporaryDirectory() as folder:
        with counted.tracing():
            policy = ENFORCE if options.enforce else OBSERVE
            more: dict[str, Any] = {"limits": {"stream_wait_ms": 60_000}}  # counting takes time
            if options.keys:
                more |= {"keys": "required", "upstream": {"api_key": OWN_KEY}}
            proxy = LiveProxy(upstream.base_url, Path(folder), policy=policy, **more)
        if options.keys:
            secret, _ = make_key(proxy.store_path)
            wait_until_known(proxy.base_url, secret)
            proxy.http.headers.update(bearer(secret))
        counted.watched = proxy._thread.ident
        found = {name: measured(proxy, counted, body()) for name, body in bodies.items()}
        proxy.stop()
    if options.json:
        print(json.dumps(found, indent=1))
    else:
        print(*(table(name, each) for name, each in found.items()), sep="\n\n")


if __name__ == "__main__":
    main()
