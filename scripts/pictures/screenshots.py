"""Pictures of the console, of a proxy with the demo upstream and an invented week before it.

python scripts/pictures/screenshots.py [FOLDER]
"""

from __future__ import annotations

import json
import os
import random
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
from playwright.sync_api import Browser, Page, sync_playwright

from calibrator import version_of
from policies import Facts, decide, load_policy
from proxy.store.database.database import open_engine
from proxy.store.database.verdicts import VerdictStore
from proxy.store.record.writer import COLUMNS, exchanges
from proxy.store.reviews.held_replies import HeldReply, held_replies
from proxy.upstreams.demo.answers import DemoRow
from proxy.upstreams.demo.demo import rows

ROOT = Path(__file__).parents[2]
CHROME = "/Applications/Google Chrome.app/Contents/MacOS/Google Chrome"
BROWSERS = (
    *("chromium", "chromium-browser", "google-chrome", "google-chrome-stable", CHROME),
    "chromium-headless-shell",
)
TOKEN = "a-token-for-the-pictures"
PORT, ADMIN_PORT = 18_110, 18_111
DAYS, PAST, LABELLED = 7, 6_000, 0.09
DAY_S = 86_400
CALIBRATOR = version_of("embedded")
POLICY = """
version: 1
name: pharmacy
mode: enforce
on_score_error: hold
rules:
  - name: irreversible tools
    when: {tools: ["send*", "cancel*", "delete*", "transfer*", "book*"], confidence: {below: 0.99}}
    then: {hold: {queue: oncall, expires: 30m}}
  - name: very unsure
    when: {confidence: {below: 0.45}}
    then: {hold: {queue: review, expires: 2d}}
  - name: unclear question
    when: {confidence: {below: 0.5}}
    then: {clarify: {text: "Could you tell me a little more?"}}
  - name: stricter
    shadow: true
    when: {confidence: {below: 0.6}}
    then: {hold: {queue: review}}
default: deliver
"""
OPENED = {
    "review": "The leaflet of my painkiller",
    "tool": "Move 250 euros",
}  # links by question
SHOTS = (  # name, address, width, height, colours
    ("review", "review", 1200, 760, "light"),
    ("review-dark", "tool", 1200, 760, "dark"),
    ("queue", "/console/reviews", 1200, 700, "light"),
    ("quality", "/console/quality", 1200, 800, "light"),
    ("traffic-dark", "/console/traffic", 1200, 640, "dark"),
    ("policies", "/console/policies", 1200, 560, "light"),
    ("phone", "review", 390, 780, "light"),
)


def past(store: str, folder: Path) -> None:
    """Write a week of invented exchanges of a slightly overconfident calibrator into the store.

    Some delivered replies get a verdict. `folder` has the policy, and `store` is a URL such as
    `sqlite:///a.db`.
    """
    rng = random.Random(11)
    policy = load_policy(folder / "pharmacy.yaml")
    engine, now = open_engine(store), time.time()
    found, drawn = [], []
    for number in range(PAST):
        at = now - DAYS * DAY_S * (1 - number / PAST) - 60
        model, shape = rng.choice(
            (("gpt-5.6", (7, 2)), ("gpt-5.6-mini", (4, 2)), ("o-small", (4, 3)))
        )
        confidence = rng.betavariate(*shape) * (0.85 if number > 0.8 * PAST else 1)
        decision = decide(policy, Facts(confidence, model))
        id = f"req_{int(at * 1_000):012x}{rng.getrandbits(80):020x}"
        row = dict.fromkeys(COLUMNS) | {
            "request_id": id,
            "started_at": at,
            "key_hash": "made-up",
            "path": "/v1/chat/completions",
            "upstream": "openai",
            "model": model,
            "is_stream": False,
            "status": 200,
            "confidence": confidence,
            "confidence_status": "scored",
            "action": decision.applied.name,
            "policy": decision.label,
            "calibrator": CALIBRATOR,
            "total_ms": rng.lognormvariate(6.6, 0.5),
            "overhead_ms": 0.4,
            "score_ms": 4.0,
            "team": rng.choice(("support", "sales", "pharmacy")),
            "shadowed": json.dumps(
                [{"rule": s.rule, "action": s.action.name} for s in decision.shadowed]
            ),
        }
        found.append(row)
        if decision.applied.name == "deliver" and rng.random() < LABELLED:
            drawn.append((id, at, confidence, rng.random() < 0.12 + 0.75 * confidence))
    with engine.begin() as connection:
        connection.execute(exchanges.insert(), found)
        connection.execute(held_replies.insert(), [_audit(*each[:3]) for each in drawn])
    engine.dispose()
    findings = VerdictStore(store)
    for id, _, _, is_correct in drawn:
        findings.give_verdict(id, is_correct, rng.choice(("ada", "ben")))
    findings.close()


def _audit(request_id: str, at: float, confidence: float) -> dict[str, Any]:
    """Return a delivered reply that was drawn for review and released, as a row of held replies.

    `at` is its time in seconds of the epoch.
    """
    held = HeldReply(
        id=f"audit_{request_id}",
        key_hash="made-up",
        queue="audit",
        model="gpt-5.6",
        policy="",
        confidence=confidence,
        calibrator=CALIBRATOR,
        question="?",
        reply=b"{}",
        created_at=at,
        expires_at=at + DAY_S,
        state="released",
        decided_at=at + 3_600,
        kind="audit",
        request_id=request_id,
        share=LABELLED,
    )
    return {column.name: getattr(held, column.name) for column in held_replies.columns}


@contextmanager
def serving(folder: Path, store: str) -> Iterator[None]:
    """Run `pinocchio serve` with the demo upstream, the policy and the store until the block ends.

    It waits up to 30 s until the server is ready; its configuration and log are written to
    `folder`.
    """
    (folder / "proxy.yaml").write_text(
        f"upstreams: {{demo: {{demo: true}}}}\nmodels: [{{match: '*', upstream: demo}}]\n"
        f"policies: pharmacy.yaml\nstore: {store}\n"
        f"admin: {{port: {ADMIN_PORT}, token: {TOKEN}}}\n"
    )
    command = [sys.executable, "-m", "pinocchio", "serve", "--config", str(folder / "proxy.yaml")]
    process = subprocess.Popen(
        [*command, "--port", str(PORT)],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        stdout=subprocess.DEVNULL,
        stderr=(folder / "log").open("w"),
    )
    try:
        for _ in range(300):
            try:
                if httpx.get(f"http://127.0.0.1:{PORT}/readyz", trust_env=False).status_code == 200:
                    break
            except httpx.TransportError:
                pass
            time.sleep(0.1)
        yield
    finally:
        process.terminate()
        process.wait(20)


def ask(row: DemoRow) -> None:
    """Ask the running proxy the question of a demo row, with its tools; ignore the reply."""
    body: dict[str, Any] = {
        "model": "gpt-5.6-mini",
        "messages": [{"role": "user", "content": row.question}],
    }
    if row.tools:
        body["tools"] = row.tools
    system = {"role": "system", "content": "You answer customers of a pharmacy. Be brief."}
    body["messages"].insert(0, system)
    url = f"http://127.0.0.1:{PORT}/v1/chat/completions"
    httpx.post(url, json=body, trust_env=False, timeout=30)


def take(browser: Browser, folder: Path) -> None:
    """Sign in and write each picture of `SHOTS` as a PNG file into the folder; print its size."""
    for name, place, width, height, scheme in SHOTS:
        viewport = {"width": width, "height": height}
        context = browser.new_context(viewport=viewport, color_scheme=scheme)  # type: ignore[arg-type]
        page = context.new_page()
        page.goto(f"http://127.0.0.1:{ADMIN_PORT}/pinocchio/login")
        page.get_by_label("Token").fill(TOKEN)
        page.get_by_role("button", name="Sign in").click()
        page.wait_for_url("**/console/reviews")
        open_page(page, place)
        page.wait_for_timeout(400)  # until charts are drawn
        page.screenshot(path=folder / f"{name}.png")
        print(f"{name}.png: {(folder / f'{name}.png').stat().st_size // 1_000} kB")
        context.close()


def open_page(page: Page, place: str) -> None:
    """Open an address of the console, or the review of a question in `OPENED`, such as `tool`.

    For `tool` the editor is opened too.
    """
    if place.startswith("/"):
        page.goto(f"http://127.0.0.1:{ADMIN_PORT}{place}")
        return
    page.get_by_role("link", name=OPENED[place]).click()
    page.wait_for_url("**/console/reviews/*")
    page.locator('[data-key="a"][aria-disabled="false"]').wait_for()  # it was looked at
    if place == "tool":
        page.keyboard.press("e")


def main() -> None:
    """Write all pictures into the folder named on the command line, or `.github/images`.

    Exits with a message if no Chromium is installed.
    """
    folder = Path(sys.argv[1] if len(sys.argv) > 1 else ROOT / ".github" / "images")
    folder.mkdir(parents=True, exist_ok=True)
    path = next(filter(None, map(shutil.which, BROWSERS)), None)
    if path is None:
        sys.exit("no Chromium is installed: apt-get install chromium, or Google Chrome")
    with tempfile.TemporaryDirectory() as scratch, sync_playwright() as playwright:
        work = Path(scratch)
        store = f"sqlite:///{work}/pictures.db"
        (work / "pharmacy.yaml").write_text(POLICY)
        past(store, work)
        with serving(work, store):
            for row in {row.question_id: row for row in reversed(rows())}.values():
                ask(row)
            options = ["--no-sandbox"] if os.geteuid() == 0 else []
            browser = playwright.chromium.launch(executable_path=path, args=options)
            take(browser, folder)
            browser.close()


if __name__ == "__main__":
    main()
