"""`pinocchio collect`: labelled replies made from questions and models (paper, data)."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from calibrator import Progress
from policies import plural
from proxy.commands.opening.exits import (
    ConfigOption,
    exit_on_calibrator_errors,
    exit_on_errors,
    plain,
    stop,
)
from proxy.errors import ExitStatus, StartupError

if TYPE_CHECKING:
    from calibrator import RowError
    from calibrator.lab.collecting.bill import Price
    from calibrator.lab.collecting.run import CollectionPlan, CollectionResult
    from proxy.upstreams.router import Router

FAILED, INTERRUPTED = 1, 130
NAMED = 3  # the most unusable lines that are printed
MODES = "JSON members of each request, such as '{\"temperature\": 0}'."

Sources = Annotated[
    list[str] | None,
    typer.Argument(
        metavar="[BENCHMARK=]FILE",
        help='JSON lines or CSV with questions: {"question": "..", "gold": ".."}; before `=` the '
        "benchmark whose columns and prompt they have (--list).",
    ),
]
Models = Annotated[list[str] | None, typer.Option("--model", help="A model that answers; repeat.")]
Judges = Annotated[
    list[str] | None,
    typer.Option("--judge", help="A model that grades by rubrics; the first one's label counts."),
]
Output = Annotated[Path | None, typer.Option("-o", "--output", help="The folder of the data set.")]
Prices = Annotated[
    list[str] | None,
    typer.Option("--price", help="MODEL=PROMPT,COMPLETION in dollars for a million tokens."),
]
Most = Annotated[int | None, typer.Option(min=1, help="At most this many questions of each file.")]
Beside = Annotated[str, typer.Option("--with", help=MODES)]
AsItIs = Annotated[
    bool, typer.Option("--as-it-is", help="Add no prompt for the form of the answer.")
]
Band = Annotated[
    tuple[float, float],
    typer.Option(help="Accuracies between which a benchmark is trained and tested on."),
]
Concurrency = Annotated[int, typer.Option(min=1, max=256, help="Calls at a time.")]
ExpectTokens = Annotated[int, typer.Option(min=1, help="Tokens of a reply, for the estimate.")]
MaxCost = Annotated[
    float | None, typer.Option(min=0, help="End the run once it has cost this many dollars.")
]
Estimate = Annotated[
    bool, typer.Option("--estimate", help="Say what it would cost, and ask nobody.")
]
ListAll = Annotated[
    bool, typer.Option("--list", help="List the benchmarks that are known by name.")
]


def collect(
    sources: Sources = None,
    model: Models = None,
    output: Output = None,
    judge: Judges = None,
    config: ConfigOption = None,
    questions: Most = None,
    beside: Beside = "{}",
    as_it_is: AsItIs = False,
    band: Band = (0.2, 0.8),
    concurrency: Concurrency = 8,
    price: Prices = None,
    expect_tokens: ExpectTokens = 500,
    max_cost: MaxCost = None,
    estimate: Estimate = False,
    list_all: ListAll = False,
) -> None:
    """Collect answers of models to questions, grade them, and split them by question.

    Answers are kept as they come: the same command goes on after an interruption or a crash.
    """
    from calibrator.lab.data.benchmarks.tasks import load_tasks

    if list_all:
        _list()
        return
    with exit_on_errors(), exit_on_calibrator_errors():
        if not sources or not model or (output is None and not estimate):
            raise input_error("collect needs a FILE with questions, --model and --output")
        tasks, bad = load_tasks(sources, is_as_it_is=as_it_is, most=questions)
        _name(bad)
        plan = _collection_plan(
            tasks=tasks,
            models=list(dict.fromkeys(model)),
            judges=list(dict.fromkeys(judge or ())),
            beside=_members(beside),
            band=band,
            concurrency=concurrency,
            prices=_prices(price or ()),
            max_cost=max_cost,
        )
        router = router_to((*plan.models, *plan.judges), config)
        _estimate(plan, output, expect_tokens)
        if estimate or output is None:
            return
        found = _run(plan, router, output)
    _print_summary(found, output)
    if bad or found.failed or found.unlabelled:
        raise typer.Exit(FAILED)


def _collection_plan(**values: Any) -> CollectionPlan:
    """Return the settings of the run, from the fields of a CollectionPlan.

    Raises StartupError for a band that is none, and for rubrics without a judge.
    """
    from calibrator.lab.collecting.run import CollectionPlan

    low, high = values["band"]
    if not 0 <= low < high <= 1:
        raise input_error("--band wants two accuracies from 0 to 1, the lower one first")
    plan = CollectionPlan(**values)
    judged = sorted({task.benchmark for task in plan.tasks if task.grader == "rubric"})
    if judged and not plan.judges:
        raise input_error(
            f"{', '.join(judged)}: a model grades these answers; name it with --judge"
        )
    return plan


def _prices(texts: Sequence[str]) -> dict[str, Price]:
    """Parse `--price`: prices by model. Raises StartupError for a text that is none."""
    from calibrator.lab.collecting.bill import price_of

    try:
        return dict(map(price_of, texts))
    except ValueError as error:
        raise input_error(str(error)) from error


def input_error(text: str) -> StartupError:
    """Return the error that ends the command with this sentence and status 2."""
    return StartupError(ExitStatus.UNUSABLE_INPUT, text)


def _members(text: str) -> dict[str, Any]:
    """Parse `--with`, the JSON members that each request gets. Raises StartupError for others."""
    try:
        found = json.loads(text)
    except ValueError:
        found = None
    if not isinstance(found, dict) or {"model", "messages", "stream", "n"} & set(found):
        raise input_error("--with must be a JSON object, without model, messages, stream and n")
    return found


def router_to(models: Iterable[str], config: Path | None) -> Router:
    """Return a router of the configured upstreams.

    Raises StartupError where no route has one of these models.
    """
    from proxy.config.setup import load_store_config
    from proxy.errors import UnknownModelError
    from proxy.upstreams.router import Router

    router = Router(load_store_config(config))
    for model in models:
        try:
            router.name_for(model)
        except UnknownModelError as error:
            raise input_error(error.message) from error
    return router


def _estimate(plan: CollectionPlan, folder: Path | None, expected_tokens: int) -> None:
    """Print what is still to be asked and its cost, by prices and `expected_tokens` a reply.

    Answers in `folder` are not counted. Raises StartupError where it is more than --max-cost.
    """
    from calibrator.lab.collecting.bill import estimate, sentence, total
    from calibrator.lab.collecting.kept_answers import keys_in
    from calibrator.lab.collecting.run import ANSWERS
    from calibrator.lab.data.benchmarks.answered import TaskAnswer

    asks = [ask for _, ask in plan.asks]
    done = keys_in(folder / ANSWERS) if folder is not None else frozenset()
    unanswered = [ask for ask in {each.key: each for each in asks}.values() if ask.key not in done]
    judged = [
        plan.judgement(
            TaskAnswer(task, ask.model, {"content": "x" * 4 * expected_tokens}),
            judge,
            is_again=False,
        )
        for task, ask in plan.asks
        for judge in plan.judges
        if task.grader == "rubric" and ask.key not in done
    ]
    lines = estimate([*unanswered, *judged], plan.prices, expected_tokens)
    say(sentence(lines, f"estimate for {plural(len(plan.tasks), 'question')}"))
    if len(unanswered) < len(asks):
        say(f"{len(asks) - len(unanswered):,} of {len(asks):,} answers are there already")
    if plan.max_cost is not None and total(lines) > plan.max_cost:
        text = f"that is more than --max-cost {plan.max_cost:g}; ask fewer --questions"
        raise input_error(text)


def _run(plan: CollectionPlan, router: Router, folder: Path) -> CollectionResult:
    """Collect labelled rows into `folder` while progress is shown, and close the router.

    Exits with status 1 at `--max-cost`, and with 130 after an interruption; answers are kept.
    """
    from calibrator.lab.collecting.asking import TooExpensiveError
    from calibrator.lab.collecting.run import collect as run

    folder.mkdir(parents=True, exist_ok=True)

    async def collect_and_close() -> CollectionResult:
        """Collect the rows and close the router, also after an error."""
        try:
            return await run(plan, router, folder, Progress)
        finally:
            await router.aclose()

    try:
        return asyncio.run(collect_and_close())
    except TooExpensiveError as error:
        text = f"ended at --max-cost: {error} paid in this run; what was answered is kept"
        raise stop(ExitStatus.FAILED, text) from error
    except KeyboardInterrupt as error:
        say("\npinocchio: interrupted; what is answered is kept, the same command goes on")
        raise typer.Exit(INTERRUPTED) from error


def _print_summary(found: CollectionResult, folder: Path) -> None:
    """Print the rows of each benchmark, the split, the bill, and what failed."""
    from calibrator.lab.collecting.bill import sentence

    if not found.split.train and not found.split.test:
        say(_why_empty(found))
    for each in found.split.counted:
        band = "" if each.is_in_band else ", out of the band: neither trained nor tested on"
        typer.echo(
            f"{plain(each.benchmark)}: {plural(each.rows, 'reply', 'replies')} of "
            f"{plural(each.models, 'model')} to {plural(each.questions, 'question')}, "
            f"{each.accuracy:.3f} right, {each.answer_format}, graded by {plain(each.graded_by)}; "
            f"{each.refusals} refused, {each.empty} empty, {each.no_answer} without an answer{band}"
        )
    proof = found.split.proof
    typer.echo(
        f"split: {plural(len(found.split.train), 'row')} to "
        f"{plural(proof['train_questions'], 'question')} to train on, "
        f"{len(found.split.test):,} to {proof['test_questions']:,} to test on, "
        f"{proof['shared_questions']} questions on both sides"
    )
    typer.echo(sentence(found.lines, "cost of all that is kept"))
    if found.retries:
        say(f"{plural(found.retries, 'call was', 'calls were')} tried again")
    for what, count in sorted(found.failed.items()):
        say(f"{plural(count, 'call')} without an answer: {plain(what)}")
    if found.unlabelled:
        say(f"{plural(found.unlabelled, 'answer')} without a label: no judge could be read")
    typer.echo(f"written to {folder}")


def _why_empty(found: CollectionResult) -> str:
    """Return a sentence on why train.jsonl and test.jsonl are empty, and what to do."""
    outside = [each for each in found.split.counted if not each.is_in_band]
    if not outside:
        return (
            "train.jsonl and test.jsonl are empty: no answer has a label; the lines below say what "
            "became of them"
        )
    shares = ", ".join(f"{plain(each.benchmark)} {each.accuracy:.3f}" for each in outside)
    return (
        "train.jsonl and test.jsonl are empty: models are right too often or too seldom "
        f"({shares}) to learn from; keep such benchmarks with --band, such as --band 0 1"
    )


def _name(bad: list[RowError]) -> None:
    """Print the errors of the first lines that cannot be asked, and how many there are more."""
    for error in bad[:NAMED]:
        say(str(error))
    if len(bad) > NAMED:
        say(f"... and {plural(len(bad) - NAMED, 'more line')} that cannot be asked")


def _list() -> None:
    """Print a table of the known benchmarks: domain, form of the answer, grader, licence."""
    from calibrator.lab.data.benchmarks.registry import known_benchmarks

    rows: list[Mapping[str, str]] = [
        {
            "": each.name,
            "domain": each.domain,
            "modality": each.modality,
            "answers": each.answer_format,
            "grader": each.grader,
            "licence": each.licence or "look it up",
            "on the hub": each.hub or "(not there)",
        }
        for each in known_benchmarks()
    ]
    names = list(rows[0])
    widths = {name: max(len(name), *(len(row[name]) for row in rows)) for name in names}
    for row in ({name: name for name in names}, *rows):
        typer.echo("  ".join(row[name].ljust(widths[name]) for name in names).rstrip())


def say(sentence: str) -> None:
    """Print a sentence to stderr."""
    typer.echo(sentence, err=True)
