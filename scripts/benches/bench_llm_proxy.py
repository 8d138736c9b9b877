"""Chat completions through the proxy while a language model scores each in its process.

Upstream answers at once with the same 700 characters; every question is a new one, of 200. The time
that the proxy adds to a reply is read from its header (`x-pinocchio-overhead-ms`), with scoring on
and off. Clients ask again as soon as they are answered.
"""

from __future__ import annotations

import asyncio
import json
import os
import random
import statistics
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final

import aiohttp
import torch
from bench_http import ANSWER
from bench_servers import SERVERS, Server, start, start_proxy
from bench_shapes import Shape, build
from bench_table import number_text, say, table

ROOT: Final = Path(__file__).parents[2]
CONCURRENCIES: Final = (1, 8, 64)
LOADED_S: Final = 600  # seconds in which the largest model is loaded
OFF: Final = "none"
QUESTION_CHARACTERS: Final = 200  # about 620 tokens of the small tokenizer, with the answer


@dataclass(frozen=True, slots=True)
class Load:
    """The figures of one shape and one number of clients, with scoring on or off."""

    shape: str
    concurrency: int
    is_scored: bool
    completions: int
    completions_per_s: float
    added_p50_ms: float
    added_p99_ms: float


def write_checkpoint(shape: Shape, folder: Path) -> int:
    """Write a checkpoint of random weights into the folder.

    Return the number of tokens of one of the bench's prompts, without its image.
    """
    if str(ROOT) not in sys.path:
        sys.path.insert(0, str(ROOT))
    from calibrator.checkpoints.llm_config import preset
    from calibrator.llm.serving.loading import silence_loading
    from calibrator.llm.serving.prompts import Prompts
    from calibrator.scorer import Item
    from tests.builders.tiny_models import image_ids, image_processor, small_tokenizer

    device = "cuda" if torch.cuda.is_available() else "cpu"
    model = build(shape, device, torch.bfloat16 if device == "cuda" else torch.float32)
    tokenizer = small_tokenizer("")
    for name, token in image_ids(tokenizer).items():
        setattr(model.config, name, token)
    with silence_loading():
        model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    image_processor().save_pretrained(folder)
    values = {"preset": "paper", "name": f"random-{shape}", "base": ".", "adapter": None}
    (folder / "calibrator.json").write_text(json.dumps(values), encoding="utf-8")
    prompts = Prompts(preset("paper", base=".", adapter=None), tokenizer)
    [prompt] = prompts.read([Item(question(random.Random(0)), ANSWER)])
    return len(prompt.ids)


def question(rng: random.Random) -> str:
    """Return a question of 200 characters in words that the small tokenizer was made from."""
    words = "what is the sum of an answer that looks correct based on two facts and your source"
    return " ".join(rng.choices(words.split(), k=200))[:QUESTION_CHARACTERS]


async def ask(server: Server, clients: int, count: int, is_scored: bool, seed: int) -> list[float]:
    """Ask for `count` completions with `clients` at once; return the milliseconds added to each.

    They are the proxy's own figures. Raises RuntimeError for an answer with another status than
    200, or whose score is there or missing against `is_scored`.
    """
    rng = random.Random(seed)
    added: list[float] = []
    numbers = iter(range(count))
    url = server.url + "/chat/completions"
    connector = aiohttp.TCPConnector(limit=clients)
    async with aiohttp.ClientSession(connector=connector) as session:

        async def work() -> None:
            """Ask one after another until all numbers are taken."""
            for _ in numbers:
                messages = [{"role": "user", "content": question(rng)}]
                async with session.post(url, json={"model": "b", "messages": messages}) as reply:
                    await reply.read()
                if reply.status != 200 or ("x-pinocchio-confidence" in reply.headers) != is_scored:
                    raise RuntimeError(f"{url}: {reply.status} {dict(reply.headers)}")
                added.append(float(reply.headers["x-pinocchio-overhead-ms"]))

        async with asyncio.TaskGroup() as group:
            for _ in range(clients):
                group.create_task(work())
    return added


def measure(server: Server, shape: Shape, clients: int, count: int, is_scored: bool) -> Load:
    """Ask for `count` completions after a warm-up, and return the figures."""
    asyncio.run(ask(server, clients, clients, is_scored, seed=0))
    started = time.perf_counter()
    added = asyncio.run(ask(server, clients, count, is_scored, seed=clients))
    took = time.perf_counter() - started
    return Load(
        shape=shape,
        concurrency=clients,
        is_scored=is_scored,
        completions=count,
        completions_per_s=count / took,
        added_p50_ms=statistics.median(added),
        added_p99_ms=statistics.quantiles(added, n=100, method="inclusive")[-1],
    )


def through_proxy(shapes: Sequence[Shape], *, is_quick: bool, as_json: bool) -> None:
    """Measure all shapes with scoring off and on, and print the figures as a table or JSON.

    Each shape's weights are on disk while it runs.
    """
    has_gpu = torch.cuda.is_available()
    least = (200 if has_gpu else 20) if is_quick else (2_000 if has_gpu else 100)
    found: list[Load] = []
    facts: dict[str, Any] = {
        "machine": torch.cuda.get_device_name() if has_gpu else "CPU",
        "threads": "as `pinocchio serve` chooses",
        "load_before": os.getloadavg()[0],
    }
    for shape in shapes:
        say(f"{shape} ...")
        with tempfile.TemporaryDirectory() as scratch:
            folder = Path(scratch) / "checkpoint"
            facts[f"tokens of a {shape} prompt, without its image"] = write_checkpoint(
                shape, folder
            )
            with start([str(SERVERS), "upstream"]) as upstream:
                for checkpoint in (OFF, str(folder)):
                    with start_proxy(
                        upstream.url, checkpoint, Path(scratch), "auto", LOADED_S
                    ) as server:
                        for clients in CONCURRENCIES:
                            count = max(least, 2 * clients if is_quick else 4 * clients)
                            is_scored = checkpoint != OFF
                            found.append(measure(server, shape, clients, count, is_scored))
    if as_json:
        print(json.dumps({**facts, "results": [asdict(each) for each in found]}, indent=1))
        return
    print(", ".join(f"{name} {value}" for name, value in facts.items()), end="\n\n")
    rows = [list(asdict(found[0]))]
    for each in found:
        rows.append(
            [number_text(v) if isinstance(v, float) else str(v) for v in asdict(each).values()]
        )
    print(table(rows))
