"""The command `scripts/fuzz`: runs one fuzzer for some minutes, or lists the fuzzers."""

from __future__ import annotations

import argparse
import random
import sys

from proxy.http.listener.logs import configure_logs
from tests.fuzz import fuzzing


def main() -> int:
    parser = argparse.ArgumentParser(prog="scripts/fuzz")
    parser.add_argument("name", nargs="?", choices=fuzzing.names())
    parser.add_argument("--minutes", type=float, default=10.0)
    parser.add_argument("--seed", type=int, default=random.randrange(10**9))
    parser.add_argument("--cases", type=int, help="at most so many")
    parser.add_argument("--case", type=int, help="only the one with this number")
    arguments = parser.parse_args()
    configure_logs("warning")
    if arguments.name is None:
        for name in fuzzing.names():
            print(f"{name:12} {(fuzzing.fuzzer(name).__doc__ or '').splitlines()[0]}")
        return 0
    seconds = arguments.minutes * 60
    report = fuzzing.run(
        arguments.name, arguments.seed, seconds, most=arguments.cases, only=arguments.case
    )
    print("\n".join(report.lines()))
    return 1 if report.findings else 0


if __name__ == "__main__":
    sys.exit(main())
