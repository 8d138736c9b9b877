"""A fuzzer of configurations and policies, which are read or refused with a message, in time.

A finding is any exception but the one for documents, or seconds of work.
"""

from __future__ import annotations

import random
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

from policies import Facts, InvalidDocumentError, Policy, ToolCall, decide, parse_policy
from proxy.config.sections import load_config
from tests.fuzz.fuzzing import Case
from tests.fuzz.mutations import spoilt
from tests.running.live_proxy import ROOT

MOST_S = 5.0
PACKS = sorted((ROOT / "policies" / "packs").glob("*.yaml"))
WHOLE = """
upstreams:
  openai: {base_url: "${URL:-https://api.openai.com/v1}", api_key: "${KEY:-}", timeout_s: 60}
  anthropic: {speaks: anthropic, base_url: https://api.anthropic.com, api_key: x}
  demo: {demo: true}
models:
  - {match: demo, upstream: demo}
  - {match: "claude-*", upstream: anthropic}
  - {match: "*", upstream: openai}
calibrator: {checkpoint: none, device: cpu, timeout_s: 2.0, max_queue: 9}
policies: observe
store: sqlite:///x.db
attach: {headers: true, body: true}
admin: {host: 127.0.0.1, port: 8001, token: "${TOKEN:-}"}
keys: required
teams: {support: {policy: observe, requests_per_minute: 9}}
webhooks: [{url: "https://example.org/hook", secret: "whsec_MDEyMzQ1Njc4OTAxMjM0NTY3ODkwMTIz"}]
limits: {max_body: 64MB, max_held: 100}
"""
LINES = (
    *("- [", "{a: b", "? x", "&a [*a]", "<<: *a", "!!python/object:os.system x", "!!binary x"),
    *("a: &b {c: *b}", "'", '"', "|", ">", "%YAML 1.1", "---", "...", "\t", "~", ".inf", ".nan"),
    *("0o17", "1e400", "2026-11-23", "yes", "${", "${X:-${Y}}", "9" * 5_000, "[" * 900),
    *("when: {tools: any}", "then: hold", "confidence: {below: 0.5}", "- {when: {}, then: {}}"),
)
FACTS = (
    Facts(0.4, "m", (ToolCall("f", '{"a": 1}'),), True, "stop", 1, "d", frozenset({"t"}), "x", "k"),
    Facts(None, "", (), False, None, 2),
)


@contextmanager
def cases() -> Iterator[Case]:
    texts = [path.read_text() for path in PACKS]
    with TemporaryDirectory() as folder:
        yield lambda chance: _case(chance, texts, Path(folder) / "proxy.yaml")


def _case(chance: random.Random, packs: list[str], path: Path) -> str:
    is_policy = chance.random() < 0.6
    data = _changed(chance, chance.choice(packs) if is_policy else WHOLE)
    began = time.process_time()
    try:
        if is_policy:
            _use(parse_policy(data.decode("utf-8", "replace"), "policy.yaml"))
        else:
            path.write_bytes(data)
            load_config(path, {"URL": "https://example.org/v1", "KEY": "sk-x"})
        outcome = "read"
    except InvalidDocumentError as error:
        outcome = "refused" if str(error) else "refused without a word"
    except Exception as error:
        raise AssertionError(f"{type(error).__name__}: {error}\n{data!r}") from error
    assert time.process_time() - began < MOST_S, f"took too long: {data!r}"
    return f"{'policy' if is_policy else 'configuration'} {outcome}"


def _use(policy: Policy) -> None:
    for facts in FACTS:
        decide(policy, facts)


def _changed(chance: random.Random, text: str) -> bytes:
    """Return the text with lines lost, doubled, moved, indented or added, or with any bytes."""
    lines = text.splitlines(keepends=True)
    for _ in range(chance.choice((1, 1, 2, 4))):
        at = chance.randrange(len(lines))
        match chance.randrange(6):
            case 0 if len(lines) > 1:
                del lines[at]
            case 1:
                lines.insert(at, chance.choice(lines))
            case 2:
                lines[at] = " " * chance.randrange(5) + lines[at]
            case 3:
                lines.insert(at, " " * chance.randrange(5) + chance.choice(LINES) + "\n")
            case 4:
                name, colon, _ = lines[at].partition(":")
                lines[at] = f"{name}{colon} {chance.choice(LINES)}\n"
            case _:
                chance.shuffle(lines)
    data = "".join(lines).encode()
    return spoilt(chance, data) if chance.random() < 0.4 else data
