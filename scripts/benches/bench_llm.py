"""The scores a second of language-model calibrators, beside the plain loop on the same rows.

Models have random weights: on a GPU in the true shapes of Qwen3.5-0.8B, Qwen3-VL-2B and 8B, in
bf16; on the CPU in a small shape, in fp32. Rows are prompts of about 620 tokens of text after the
placeholder image's 196: each question with one answer, and each with several, as in a request with
n > 1. The plain loop takes one row at a time through transformers' own layers (except for the patch
embedding, which is ours), encodes the placeholder again and computes the logits of all positions
over the whole vocabulary. Rates are compared with that of a product of large matrices on this
machine in the same number format. Tokens that are not computed (those of the placeholder, and of a
question that was read before) do not count as work.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Final

import torch
from bench_llm_proxy import through_proxy
from bench_shapes import TRUE_SHAPES, Shape, build, random_rows
from bench_table import number_text, say, table

from calibrator.llm.layers.replace import use_faster_layers, use_linear_patches
from calibrator.llm.serving.batches import ModelRow
from calibrator.llm.serving.model import LabelModel

LABELS: Final = (20, 30)
CHOICES: Final = (1, 4, 8)
SINGLES: Final = 8  # rows scored alone
DTYPES: Final = ("float32", "bfloat16", "float16")
MATRIX: Final = {"cpu": 1_024, "cuda": 8_192}  # rows and columns


@dataclass(frozen=True, slots=True)
class Plan:
    """The amount of measurements."""

    rows: int
    rounds: int


@dataclass(frozen=True, slots=True)
class Result:
    """The figures of one shape and one number of answers to each question."""

    shape: str
    choices: int
    scores_per_s: float
    tokens_per_s: float  # tokens of the prompts as sent
    matrix_share: float  # share of the machine's measured rate
    plain_per_s: float
    times_plain: float
    single_p50_ms: float
    most_difference: float  # largest difference of a score from the plain loop's


def timed(act: Callable[[], Any], device: str) -> float:
    """Run the work and return its seconds.

    On a GPU it is the time until all of it is done; on the CPU it is the process's CPU time for
    each thread, so that busy neighbours do not count.
    """
    if device == "cpu":
        started = time.process_time()
        act()
        return (time.process_time() - started) / torch.get_num_threads()
    started = time.perf_counter()
    act()
    torch.cuda.synchronize()
    return time.perf_counter() - started


def matrix_rate(device: str, dtype: torch.dtype) -> float:
    """Return the floating-point operations a second of a large matrix product, best of twelve."""
    size = MATRIX[device]
    one = torch.randn(size, size, device=device).to(dtype)
    times = [timed(lambda: one @ one, device) for _ in range(12)]
    return 2 * size**3 / min(times)


@torch.inference_mode()
def plain_logits(model: Any, row: ModelRow) -> torch.Tensor:
    """Return the two labels' logits for one row, (2,), in the plain way, in fp32 on the CPU.

    That is every position, all words, and the image again.
    """
    ids = torch.tensor([row.ids], device=model.device)
    (image,) = row.images
    output = model(
        input_ids=ids,
        attention_mask=torch.ones_like(ids),
        pixel_values=torch.from_numpy(image.patches).to(model.device),
        image_grid_thw=torch.tensor([image.grid], device=model.device),
        mm_token_type_ids=(ids == model.config.image_token_id).long(),
    )
    logits: torch.Tensor = output.logits[0, -1, list(LABELS)]
    return logits.float().cpu()


def probability(logits: torch.Tensor) -> torch.Tensor:
    """Return P(correct) from logits (.., 2), whose last axis is wrong, right."""
    return (logits[..., 1] - logits[..., 0]).sigmoid()


def layer_weights(model: Any) -> int:
    """Return the number of the language layers' weights; each costs two operations a token."""
    layers = model.model.language_model.layers
    return sum(weight.numel() for weight in layers.parameters() if weight.ndim == 2)


def computed_tokens(scorer: LabelModel, rows: Sequence[ModelRow]) -> int:
    """Return the number of tokens that the scorer computes for the rows.

    Shared and known beginnings count once or not at all.
    """
    total = 0
    for batch in scorer.batches(rows, range(len(rows))):
        total += batch.shared - batch.start
        total += sum(len(rows[place].ids) - batch.shared for place in batch.places)
    return total


def measure(
    shape: Shape, scorer: LabelModel, plain_model: Any, rate: float, choices: int, plan: Plan
) -> Result:
    """Measure ours and the plain loop in turns, and return medians of the rounds.

    `rate` is the machine's rate of `matrix_rate`, `choices` the answers to each question.
    """
    model, rows = scorer.model, plan.rows
    device = model.device.type
    prompts = random_rows(model.config.text_config.vocab_size, rows, choices)
    plain_rows = prompts[:: max(1, rows // 4)]
    first = prompts[0]
    scorer.keep(first.cut(first.spans(scorer.image_id)[-1][1], scorer.image_id))
    found = probability(scorer.logits(prompts))
    for row in prompts[:SINGLES]:  # a GPU records the pass of each length
        scorer.logits([row])
    plain = torch.stack([plain_logits(plain_model, row) for row in plain_rows])
    ours_s, plain_s, single_s = [], [], []
    for _ in range(plan.rounds):
        ours_s.append(timed(lambda: scorer.logits(prompts), device) / rows)
        plain_s.append(
            timed(lambda: [plain_logits(plain_model, row) for row in plain_rows], device)
            / len(plain_rows)
        )
        single_s += [
            timed(lambda row=row: scorer.logits([row]), device) for row in prompts[:SINGLES]
        ]
    ours, plainly = statistics.median(ours_s), statistics.median(plain_s)
    work = 2 * layer_weights(model) * computed_tokens(scorer, prompts) / rows
    return Result(
        shape=shape,
        choices=choices,
        scores_per_s=1 / ours,
        tokens_per_s=sum(len(row.ids) for row in prompts) / rows / ours,
        matrix_share=work / ours / rate,
        plain_per_s=1 / plainly,
        times_plain=plainly / ours,
        single_p50_ms=1_000 * statistics.median(single_s),
        most_difference=float((probability(plain) - found[:: max(1, rows // 4)]).abs().max()),
    )


def results(
    shapes: Sequence[Shape], dtype: torch.dtype, plan: Plan
) -> tuple[dict[str, Any], list[Result]]:
    """Return (facts on the machine, a result for each shape and number of answers).

    The facts hold the rate of a matrix product. For each shape two models are built: ours and the
    plain loop's.
    """
    device = "cuda" if torch.cuda.is_available() else "cpu"
    rate = matrix_rate(device, dtype)
    machine = torch.cuda.get_device_name() if device == "cuda" else f"{os.cpu_count()} CPUs"
    facts = {
        "machine": machine,
        "threads": torch.get_num_threads(),
        "dtype": str(dtype).removeprefix("torch."),
        "matrix_rate_gflops": rate / 1e9,
        "load_before": os.getloadavg()[0],
    }
    found = []
    for shape in shapes:
        say(f"{shape} ...")
        model, plain_model = build(shape, device, dtype), build(shape, device, dtype)
        use_faster_layers(model)
        use_linear_patches(plain_model)
        scorer = LabelModel(model, LABELS)
        found += [measure(shape, scorer, plain_model, rate, choices, plan) for choices in CHOICES]
        del model, plain_model, scorer
    return facts, found


def main() -> None:
    """Measure the shapes, or with `--proxy` completions; print a table or JSON."""
    assert __doc__ is not None
    parser = argparse.ArgumentParser(
        prog="scripts/bench scoring", description=__doc__.splitlines()[0]
    )
    parser.add_argument("--quick", action="store_true", help="fewer rows and repetitions")
    parser.add_argument("--json", action="store_true", help="one JSON object in place of tables")
    parser.add_argument("--shapes", nargs="+", choices=["small", *TRUE_SHAPES], help="by default")
    parser.add_argument("--threads", type=int, default=1, help="of the CPU")
    parser.add_argument("--proxy", action="store_true", help="chat completions, scored and not")
    parser.add_argument("--dtype", choices=DTYPES, help="by default that of the device")
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    has_gpu = torch.cuda.is_available()
    shapes = options.shapes or (TRUE_SHAPES if has_gpu else ("small",))
    if options.proxy:
        through_proxy(shapes, is_quick=options.quick, as_json=options.json)
        return
    dtype = options.dtype or ("bfloat16" if has_gpu else "float32")
    rows = (64 if options.quick else 512) if has_gpu else (8 if options.quick else 16)
    plan = Plan(rows, rounds=1 if options.quick else 3)
    facts, found = results(shapes, getattr(torch, dtype), plan)
    if options.json:
        print(json.dumps({**facts, "results": [asdict(each) for each in found]}, indent=1))
        return
    print(", ".join(f"{name} {value}" for name, value in facts.items()), end="\n\n")
    columns = [
        [
            name,
            *(
                number_text(v) if isinstance(v := asdict(each)[name], float) else str(v)
                for each in found
            ),
        ]
        for name in asdict(found[0])
    ]
    print(table(columns))


if __name__ == "__main__":
    main()
