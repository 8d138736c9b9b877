"""The CPU cost of counting one scored request for `/metrics`.

    scripts/bench counts [--json]

The rest of `/metrics` is computed only when it is asked for, and costs a request nothing.
"""

from __future__ import annotations

import argparse
import json
import time

from policies import Facts, decide, load_policy
from proxy.exchange.exchange import Exchange
from proxy.exchange.metrics import Metrics
from proxy.exchange.outcome import Outcome
from proxy.scoring.scoring import Status
from proxy.wire.http import Request

REQUESTS, ROUNDS = 100_000, 5


def ended() -> Exchange:
    """Return a typical exchange: relayed, scored, decided on."""
    facts = Facts(0.73, "gpt-5")
    exchange = Exchange(Request("POST", "/v1/chat/completions", "", []))
    exchange.upstream, exchange.status, exchange.in_upstream.s = "openai", 200, 0.8
    decision = decide(load_policy("observe"), facts)
    outcome = Outcome(exchange.request_id, Status.SCORED, None, 0.73, "deliver", decision, "c@1")
    outcome.facts, outcome.score_ms = [facts], 5.0
    exchange.outcome = outcome
    return exchange


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", action="store_true")
    as_json = parser.parse_args().json
    metrics, exchange, best = Metrics(), ended(), float("inf")
    for _ in range(ROUNDS):
        began = time.process_time()
        for _ in range(REQUESTS):
            metrics.note(exchange)
        best = min(best, (time.process_time() - began) / REQUESTS * 1e6)
    print(json.dumps({"us_a_request": best}) if as_json else f"{best:.1f} us of CPU a request")


if __name__ == "__main__":
    main()
