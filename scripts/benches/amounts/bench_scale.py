"""A request's CPU with large amounts of rules, keys, held replies and records, beside small ones.

    scripts/bench scale [--quick] [--only rules ..] [--json]

rules      1,000 rules of an enforced policy that do not apply (to other teams, models, keys, tags,
           tools), beside one
keys       100,000 client keys, beside one; a key is required
held       1,000,000 held replies, beside none
exchanges  10,000,000 exchanges on record, beside none

Both answer the same requests from one canned upstream in turns, 64 at once, with a scorer that
costs nothing and the record on. The CPU time is that of the whole process. The result is the median
of the rounds' ratios, which may be at most 1.2. The measurement starts once monitors have read the
record, which they do when they begin. `--quick` has a hundredth of the rows, to try it.
"""

from __future__ import annotations

import argparse
import json
import os
import sqlite3
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import ExitStack, closing
from dataclasses import dataclass, replace
from pathlib import Path

from bench_launches import SCRIPTS, ours
from bench_load import closed_loop, run
from bench_process import free_port, launched, pin, share_cores
from bench_table import say, shown, table
from bench_targets import Launch, Place, Target, running

ROOT = Path(__file__).parents[3]
sys.path.insert(0, str(ROOT))

from proxy.gate.secret_keys import digest_of, new_key_id, new_secret  # noqa: E402
from proxy.store.client_keys import ClientKey, KeyStore, client_keys  # noqa: E402
from proxy.store.database import open_engine  # noqa: E402
from proxy.store.record.writer import DAY_S, exchanges  # noqa: E402
from proxy.store.reviews.held_replies import HELD as OPEN  # noqa: E402
from proxy.store.reviews.held_replies import held_replies  # noqa: E402

RULES, KEYS, HELD, EXCHANGES = 1_000, 100_000, 1_000_000, 10_000_000
CLIENTS = 64
SETTLE_S = 300
_WHENS = (
    {"team": "team{n}", "confidence": {"below": 0.9}},
    {"model": "other-{n}-*", "confidence": {"below": 0.9}},
    {"key": "ci-{n}"},
    {"tags": ["tag{n}"]},
    {"tools": [{"name": "tool{n}", "arguments": {"amount": {"above": 100}}}]},
)


@dataclass(frozen=True, slots=True)
class Pair:
    """Two proxies that differ in the amount of something."""

    name: str
    little: Launch
    much: Launch


def policy(rules: int) -> dict[str, object]:
    whens = [
        json.loads(json.dumps(_WHENS[n % len(_WHENS)]).replace("{n}", str(n))) for n in range(rules)
    ]
    listed = [{"name": f"r{n}", "when": when, "then": "hold"} for n, when in enumerate(whens)]
    head = {"version": 1, "name": "scale", "mode": "enforce", "on_score_error": "deliver"}
    return {**head, "rules": listed, "default": "deliver"}


def configured(place: Place, **sections: object) -> Launch:
    launch = ours("ours", place)
    assert launch.records is not None
    path = launch.records.parent / "proxy.yaml"
    config = json.loads(path.read_text())
    path.write_text(json.dumps({**config, "admin": False, **sections}))
    return launch


def with_rules(place: Place, _: float) -> Pair:
    launches = []
    for rules in (1, RULES):
        launch = configured(place, policies="scale.yaml")
        assert launch.records is not None
        (launch.records.parent / "scale.yaml").write_text(json.dumps(policy(rules)))
        launches.append(launch)
    return Pair("rules", *launches)


def with_keys(place: Place, share: float) -> Pair:
    secret = new_secret()
    launches = []
    for keys in (1, int(KEYS * share)):
        upstream = {"base_url": f"{place.upstream_url}/v1", "api_key": "bench"}
        launch = configured(place, keys="required", upstreams={"bench": upstream})
        launch = replace(launch, headers=(("Authorization", f"Bearer {secret}"),))
        url = url_of(launch)
        store = KeyStore(url)
        store.add(ClientKey(new_key_id(), digest_of(secret.encode()), time.time(), name="bench"))
        store.close()
        columns = {
            "id": "printf('key_%012x', i)",
            "digest": "printf('%064x', i)",
            "created_at": str(time.time()),
            "name": "'other' || i",
        }
        if keys > 1:
            fill(launch, client_keys.name, keys - 1, columns)
        launches.append(launch)
    return Pair("keys", *launches)


def with_held(place: Place, share: float) -> Pair:
    little, much = configured(place), configured(place, limits={"max_held": 2 * HELD})
    now = time.time()
    columns = {
        "id": "printf('chatcmpl-held-%032x', i)",
        "key_hash": "'key' || (i % 1000)",
        "state": f"'{OPEN}'",
        "queue": "'review'",
        "model": "'gpt'",
        "policy": "'p/r@1'",
        "confidence": "(i * 7919 % 9973) / 9973.0",
        "question": "'why?'",
        "reply": f"CAST('{'It leaves before midnight. ' * 40}' AS BLOB)",
        "created_at": f"{now} - i / 100.0",
        "expires_at": f"{now + 10 * DAY_S}",
        "request_id": "printf('req_%032x', i)",
    }
    fill(much, held_replies.name, int(HELD * share), columns)
    return Pair("held", little, much)


def with_exchanges(place: Place, share: float) -> Pair:
    little, much = configured(place), configured(place)
    rows, span_s = int(EXCHANGES * share), 29 * DAY_S
    started_at = f"({time.time() - span_s} + i * {span_s / rows})"
    columns = {
        "request_id": f"printf('req_%012x%020x', CAST({started_at} * 1000 AS INTEGER), i)",
        "started_at": started_at,
        "key_hash": "'key' || (i % 1000)",
        "path": "'/v1/chat/completions'",
        "upstream": "'bench'",
        "model": "'bench'",
        "is_stream": "0",
        "status": "200",
        "confidence": "(i * 7919 % 9973) / 9973.0",
        "confidence_status": "'scored'",
        "action": "'deliver'",
        "policy": "'observe/default@1234abcd'",
        "calibrator": "'fake'",
        "total_ms": "800.0",
        "overhead_ms": "1.5",
        "score_ms": "0.1",
        "conversation": "printf('%032x', i / 3)",
    }
    fill(much, exchanges.name, rows, columns)
    return Pair("exchanges", little, much)


PAIRS: dict[str, Callable[[Place, float], Pair]] = {
    "rules": with_rules,
    "keys": with_keys,
    "held": with_held,
    "exchanges": with_exchanges,
}


def url_of(launch: Launch) -> str:
    return f"sqlite:///{launch.records}"


def fill(launch: Launch, table: str, rows: int, columns: dict[str, str]) -> None:
    """Insert rows into the store of a proxy that is not started yet; columns are SQL of `i`."""
    open_engine(url_of(launch)).dispose()
    assert launch.records is not None
    with closing(sqlite3.connect(launch.records)) as database:
        database.execute("PRAGMA synchronous=OFF")
        numbers = f"SELECT 0 UNION ALL SELECT i + 1 FROM n WHERE i + 1 < {rows}"
        values = f"INSERT INTO {table} ({', '.join(columns)}) SELECT {', '.join(columns.values())}"
        database.execute(f"WITH RECURSIVE n(i) AS ({numbers}) {values} FROM n")
        database.commit()


def measure(target: Target, for_s: float) -> float:
    """Return the CPU milliseconds of a request, over all threads of the process."""
    before = target.cpu_s()
    sample = run(closed_loop(target.job(), CLIENTS, for_s))
    return 1_000 * (target.cpu_s() - before) / sample.served


def settle(target: Target) -> None:
    """Wait until the process rests, as monitors read the record once when they begin."""
    deadline, quiet = time.monotonic() + SETTLE_S, 0
    while quiet < 3 and time.monotonic() < deadline:
        before = target.cpu_s()
        time.sleep(1.0)
        quiet = quiet + 1 if target.cpu_s() - before < 0.05 else 0


def figures(pair: Pair, place: Place, rounds: int, for_s: float) -> dict[str, list[float]]:
    """Return CPU milliseconds with little and with much, by round, and both start times."""
    found: dict[str, list[float]] = {"little": [], "much": [], "start_s": []}
    with ExitStack() as stack:
        targets = {}
        for which, launch in (("little", pair.little), ("much", pair.much)):
            began = time.monotonic()
            targets[which] = stack.enter_context(running(f"{pair.name}-{which}", place, launch))
            found["start_s"].append(time.monotonic() - began)
        for target in targets.values():
            measure(target, 1.0)  # fills caches
            settle(target)
        for number in range(rounds):
            for which in ("little", "much") if number % 2 else ("much", "little"):
                found[which].append(measure(targets[which], for_s))
    return found


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--quick", action="store_true", help="a hundredth of the rows, 3 rounds")
    parser.add_argument("--json", action="store_true", help="one JSON object in place of the table")
    parser.add_argument("--only", nargs="+", choices=PAIRS, default=[*PAIRS])
    options = parser.parse_args()
    share, rounds, for_s = (0.01, 3, 2.0) if options.quick else (1.0, 7, 4.0)
    cores, port = share_cores(), free_port()
    command = [sys.executable, str(SCRIPTS / "benches/peers/bench_upstream.py"), str(port)]
    found = {}
    with tempfile.TemporaryDirectory() as folder, (Path(folder) / "log").open("wb") as log:
        place = Place(ROOT, ROOT / ".bench", Path(folder), cores, port)
        with launched(command, stdout=log, stderr=log, cores=cores.upstream):
            pin(cores.load)
            for name in options.only:
                say(f"{name}: filling the store ...")
                found[name] = figures(PAIRS[name](place, share), place, rounds, for_s)
    about = f"{os.cpu_count()} CPUs, load average {os.getloadavg()[0]:.1f}, {rounds} rounds"
    if options.json:
        print(json.dumps({"about": about, "values": found}, indent=1))
        return 0
    rows = [["", "CPU ms, little", "much", "ratio", "lowest", "highest", "start s", "much"]]
    for name, each in found.items():
        ratios = sorted(b / a for a, b in zip(each["little"], each["much"], strict=True))
        medians = (statistics.median(each[which]) for which in ("little", "much"))
        middle = (statistics.median(ratios), ratios[0], ratios[-1])
        rows.append([name, *map(shown, (*medians, *middle, *each["start_s"]))])
    print(about, table(rows), sep="\n\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
