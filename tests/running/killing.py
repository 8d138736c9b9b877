"""A proxy that is killed under load, again and again, and checks of its store afterwards.

Clients send requests whose replies are held tool calls, a reviewer in another process releases
every second one, and clients repeat their requests until they have it. A client that loses its
connection repeats its request once the proxy is back.
"""

from __future__ import annotations

import json
import random
import signal
import threading
import time
from collections import defaultdict
from concurrent.futures import ThreadPoolExecutor
from itertools import count
from pathlib import Path
from queue import Empty, SimpleQueue
from threading import Semaphore
from typing import Any

import httpx

from proxy.holds.binding import AGAIN_S
from proxy.store.database.tables import path_of
from proxy.store.reviews.held_replies import HELD, RELEASED
from tests.running.databases import execute
from tests.running.live_proxy import PATIENCE_S, ProxyProcess, question
from tests.running.reviewing import decide

CLIENTS = 4
MOST_ANSWERS = 8  # answers of one life, after which the kill comes
FIRST_S, LAST_S = 0.1, 1.0  # seconds of load before a kill that waits for no answer
WITHIN_S = 30  # seconds that one answer may take
REVIEW_ID = "x-pinocchio-review-id"
TOOL = {"type": "function", "function": {"name": "weather", "parameters": {}}}
CONFIG = """
upstreams: {{faulty: {{base_url: "{upstream}"}}}}
models: [{{match: "*", upstream: faulty}}]
calibrator: {{checkpoint: "fake:0.1"}}
policies: hold.yaml
store: "{store}"
"""
HOLD = "version: 1\nname: hold\nrules: []\ndefault: {hold: {expires: 1h}}\n"

KEY = {"authorization": "Bearer sk-agent"}  # only clients with a key can have approvals


class Killed:
    """`told` and `handed` are what clients saw: by request, the ids of replies held and released.

    `is_released` are the ids that the reviewer released.
    """

    def __init__(self, url: str, upstream: str, folder: Path, seed: int) -> None:
        self._url, self._folder = url, folder
        self._config = CONFIG.format(upstream=upstream, store=url)
        (folder / "hold.yaml").write_text(HOLD)
        self._random = random.Random(seed)
        self._numbers = count()
        self._pending: list[str | None] = [None] * CLIENTS
        self._answers = Semaphore(0)  # answers of the present life
        self._to_review: SimpleQueue[str] = SimpleQueue()  # each id once, since a reviewer is slow
        self.told: defaultdict[str, set[str]] = defaultdict(set)
        self.handed: defaultdict[str, set[str]] = defaultdict(set)
        self.is_released: set[str] = set()

    def live_and_die(self) -> None:
        """Run the proxy for one life, which ends at a random instant."""
        proxy = ProxyProcess(self._folder, self._config)
        is_over = threading.Event()
        try:
            with ThreadPoolExecutor(CLIENTS + 1) as pool:
                done = [
                    pool.submit(self._ask, number, proxy.base_url, is_over)
                    for number in range(CLIENTS)
                ]
                done.append(pool.submit(self._review, is_over))
                self._wait_for_the_end()
                proxy.send_signal(signal.SIGKILL)
                is_over.set()
            for each in done:
                each.result()
        finally:
            proxy.send_signal(signal.SIGKILL)
            proxy.wait(within_s=20)

    def _wait_for_the_end(self) -> None:
        """Wait until the proxy has given a random number of answers, or for a random time.

        A life lasts as long as some answers take: on a busy machine no number of seconds is enough,
        and nothing would ever be handed out.
        """
        if wanted := self._random.randint(0, MOST_ANSWERS):
            self._answers = Semaphore(0)
            for _ in range(wanted):
                self._answers.acquire(timeout=WITHIN_S)
            time.sleep(self._random.uniform(0, FIRST_S))
        else:
            time.sleep(self._random.uniform(FIRST_S, LAST_S))

    def _ask(self, client: int, base_url: str, is_over: threading.Event) -> None:
        with httpx.Client(
            base_url=base_url, trust_env=False, timeout=PATIENCE_S, headers=KEY
        ) as http:
            while not is_over.is_set():
                text = self._pending[client] or f"{next(self._numbers)} p=0.1"
                self._pending[client] = text
                try:
                    if self._is_answered(http, text, is_over):
                        self._pending[client] = None
                except httpx.TransportError:
                    return

    def _is_answered(self, http: httpx.Client, text: str, is_over: threading.Event) -> bool:
        """Ask until there is nothing more to wait for; return False if the proxy ended before."""
        is_reviewed = int(text.split()[0]) % 2 == 0
        while not is_over.is_set():
            was_told = bool(self.told[text])
            if (id := self._post(http, text)) is None or not is_reviewed:
                return True
            if not was_told:
                self._to_review.put(id)
            time.sleep(0.01)
        return False

    def _post(self, http: httpx.Client, text: str) -> str | None:
        """Return the id under which the reply is held, or None if it was handed out."""
        deadline = time.monotonic() + 20
        while True:
            reply = http.post("/chat/completions", json=question(text, "tools", tools=[TOOL]))
            if reply.status_code != 503:  # 503: what a killed proxy held is still being committed
                break
            assert reply.json()["error"]["code"] == "store_unavailable", reply.text
            assert time.monotonic() < deadline, reply.text
            time.sleep(0.01)
        id = reply.headers[REVIEW_ID]
        self._answers.release()
        if reply.status_code == 422:
            self.told[text].add(id)
            return id
        assert reply.status_code == 200, reply.text
        [call] = reply.json()["choices"][0]["message"]["tool_calls"]
        assert json.loads(call["function"]["arguments"])["city"] == text
        self.handed[text].add(id)
        return None

    def _review(self, is_over: threading.Event) -> None:
        while not (is_over.is_set() and self._to_review.empty()):  # no kill stops a reviewer
            try:
                id = self._to_review.get(timeout=0.02)
            except Empty:
                continue
            if decide(self._url, id, RELEASED):
                self.is_released.add(id)

    # --- afterwards -----------------------------------------------------------------------------

    def problems(self) -> list[str]:
        """Return the problems of the store, and of another life of the proxy on it."""
        rows = {row["id"]: row for row in self._rows()}
        return [
            *self._lost(rows),
            *self._twice(rows),
            *self._broken(rows),
            *self._handed_out_again(rows),
        ]

    def _rows(self) -> list[dict[str, Any]]:
        names = ("id", "state", "request_digest", "reply", "taken_at", "request_id", "question")
        found = execute(self._url, f"SELECT {', '.join(names)} FROM held_replies")
        return [dict(zip(names, row, strict=True)) for row in found]

    def _lost(self, rows: dict[str, dict[str, Any]]) -> list[str]:
        seen = {id for ids in (*self.told.values(), *self.handed.values()) for id in ids}
        lost = [f"{id} was told and is not there" for id in seen - rows.keys()]
        undone = [id for id in self.is_released & rows.keys() if rows[id]["state"] != RELEASED]
        return lost + [f"{id} was released and is {rows[id]['state']}" for id in undone]

    def _twice(self, rows: dict[str, dict[str, Any]]) -> list[str]:
        """Return the requests with more than one reply, or one that is not marked as handed out."""
        of_request = defaultdict(set)
        for id, row in rows.items():
            of_request[row["request_digest"]].add(id)
        found = [f"one request has {ids}" for ids in of_request.values() if len(ids) > 1]
        for text, ids in self.handed.items():
            if len(ids | self.told[text]) > 1:
                found.append(f"{text!r} was told {self.told[text]} and got {ids}")
            found += [
                f"{id} was handed out and is not marked so"
                for id in ids
                if rows[id]["taken_at"] is None
            ]
        return found

    def _broken(self, rows: dict[str, dict[str, Any]]) -> list[str]:
        found = []
        for id, row in rows.items():
            completion = json.loads(bytes(row["reply"]))
            [call] = completion["choices"][0]["message"]["tool_calls"]
            if json.loads(call["function"]["arguments"])["city"] != row["question"]:
                found.append(f"{id} has the reply to another question")
            if row["state"] not in (HELD, RELEASED) or not row["request_id"]:
                found.append(f"{id} is half written: {row}")
        if path_of(self._url) is not None:
            messages = execute(self._url, "PRAGMA integrity_check")
            found += [text for (text,) in messages if text != "ok"]
        recorded = execute(self._url, "SELECT review_id FROM exchanges WHERE review_id IS NOT NULL")
        unknown = {id for (id,) in recorded} - rows.keys()
        return found + [f"a record of {id}, which is not there" for id in unknown]

    def _handed_out_again(self, rows: dict[str, dict[str, Any]]) -> list[str]:
        """Return the replies that are handed out again after the time in which that is allowed."""
        execute(self._url, f"UPDATE held_replies SET taken_at = taken_at - {AGAIN_S + 1}")
        again = []
        with (
            ProxyProcess(self._folder, self._config) as proxy,
            httpx.Client(
                base_url=proxy.base_url, trust_env=False, timeout=PATIENCE_S, headers=KEY
            ) as http,
        ):
            for text, [*ids] in self.handed.items():
                if self._post(http, text) in (None, *ids):
                    again.append(f"{text!r} was handed out again")
        return again
