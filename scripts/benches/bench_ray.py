"""The cost and the gain of a Ray cluster on this machine, beside the same work in one process.

Files: seconds of `pinocchio score` for one row and for many, and the rows a second that follow from
the difference, in one process, and on Ray with one actor and with two. Requests: milliseconds of
one score at a time, by one replica of Ray Serve and by `pinocchio serve --scorer-only`, asked in
turns.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any, Final

import httpx
import yaml
from bench_process import cpu_s, free_port, launched
from bench_table import say, shown, table

ROOT: Final = Path(__file__).parents[2]
CONFIG: Final = ROOT / "deploy" / "ray" / "serve_config.yaml"
ENGINES: Final = {
    "one process": [],
    "Ray, one actor": ["--engine", "ray", "--actors", "1"],
    "Ray, two actors": ["--engine", "ray", "--actors", "2"],
}
START_S: Final = 180
QUIET: Final = {"OMP_NUM_THREADS": "1", "RAY_USAGE_STATS_ENABLED": "0"}


def rows(count: int) -> str:
    """Return JSON lines of random words, 40 to 400 in each."""
    rng = random.Random(1)
    words = ["".join(rng.choices("abcdefghijklmnopqrstuvwxyz", k=6)) for _ in range(2_000)]
    replies = (" ".join(rng.choices(words, k=rng.randint(40, 400))) for _ in range(count))
    return "".join(
        json.dumps({"id": n, "question": f"What is {n}?", "response": reply}) + "\n"
        for n, reply in enumerate(replies)
    )


def seconds_of(command: list[str]) -> float:
    started = time.perf_counter()
    subprocess.run(command, check=True, capture_output=True, env=os.environ | QUIET, cwd=ROOT)
    return time.perf_counter() - started


def files(count: int, folder: Path) -> list[list[str]]:
    one, many = folder / "one.jsonl", folder / "many.jsonl"
    one.write_text(rows(1))
    many.write_text(rows(count))
    found = [["files", "one row, s", f"{count:,} rows, s", "rows a second"]]
    for name, options in ENGINES.items():
        command = [sys.executable, "-m", "pinocchio", "score", "-o", str(folder / "out"), *options]
        say(f"{name} ..")
        start_s, whole_s = (seconds_of([*command, str(path)]) for path in (one, many))
        rate = (count - 1) / (whole_s - start_s)
        found.append([name, shown(start_s), shown(whole_s), shown(rate)])
    return found


def configured(folder: Path, port: int) -> Path:
    """Write the configuration of deploy/ for one replica on this machine, and return its path."""
    config = yaml.safe_load(CONFIG.read_text())
    config["http_options"]["port"] = port
    options = config["applications"][0]["deployments"][0]["autoscaling_config"]
    options |= {"min_replicas": 1, "max_replicas": 1}
    path = folder / "serve.yaml"
    path.write_text(yaml.safe_dump(config))
    return path


def wait_for(url: str, process: subprocess.Popen[bytes]) -> None:
    deadline = time.monotonic() + START_S
    while time.monotonic() < deadline and process.poll() is None:
        try:
            if httpx.get(f"{url}/pinocchio/v1/scorer").status_code == 200:
                return
        except httpx.TransportError:
            pass
        time.sleep(0.2)
    raise SystemExit(f"{url} does not answer")


def requests(count: int, folder: Path) -> list[list[str]]:
    ports = {"Ray Serve": free_port(), "serve --scorer-only": free_port()}
    urls = [f"http://127.0.0.1:{port}" for port in ports.values()]
    serve = [str(Path(sys.executable).with_name("serve")), "run"]
    alone = [sys.executable, "-m", "pinocchio", "serve", "--scorer-only", "--port"]
    commands = [
        [*serve, str(configured(folder, ports["Ray Serve"]))],
        [*alone, str(ports["serve --scorer-only"])],
    ]
    log: dict[str, Any] = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    env = QUIET | {"PINOCCHIO_LOG_LEVEL": "warning", "PYTHONPATH": str(ROOT)}
    item = json.loads(rows(1))
    body = {"items": [{"question": item["question"], "answer": item["response"]}]}
    say("Ray Serve and a scoring server ..")
    with (
        launched(commands[0], env=env, cwd=ROOT, **log) as first,
        launched(commands[1], env=env, cwd=ROOT, **log) as second,
    ):
        processes = [first, second]
        for url, process in zip(urls, processes, strict=True):
            wait_for(url, process)
        times: list[list[float]] = [[], []]
        spent: list[float] = [0.0, 0.0]
        with httpx.Client() as client:
            for turn in range(count + 20):
                for at, url in enumerate(urls):
                    cpu, started = cpu_s(processes[at].pid), time.perf_counter()
                    client.post(f"{url}/pinocchio/v1/score", json=body).raise_for_status()
                    if turn >= 20:  # the first requests warm it up
                        times[at].append(time.perf_counter() - started)
                        spent[at] += cpu_s(processes[at].pid) - cpu
    found = [["requests", "p50, ms", "p90, ms", "CPU ms a request"]]
    for at, name in enumerate(ports):
        tenths = statistics.quantiles(times[at], n=10)
        figures = (1_000 * tenths[4], 1_000 * tenths[8], 1_000 * spent[at] / count)
        found.append([name, *map(shown, figures)])
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, prog="scripts/bench ray")
    parser.add_argument("--quick", action="store_true", help="fewer rows and requests")
    quick = parser.parse_args().quick
    with tempfile.TemporaryDirectory() as folder:
        asked = requests(50 if quick else 500, Path(folder))
        print(table(asked), end="\n\n", flush=True)
        print(table(files(2_000 if quick else 20_000, Path(folder))), end="\n\n", flush=True)
    say(f"load of the machine: {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores")


if __name__ == "__main__":
    main()
