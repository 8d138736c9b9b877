"""Unknown models are rated like their last known predecessor."""

from __future__ import annotations

import pytest

from calibrator import Item, Scorer, load_scorer
from calibrator.features.successors import Predecessors, predecessor

KNOWN = ("gpt-5", "gpt-5.4", "gpt-5.4-mini", "gpt-5.4-nano", "claude-opus-4.8", "claude-opus-4")
KNOWN = (*KNOWN, "claude-sonnet-5", "claude-haiku-4.5", "claude-opus-4.6-think", "gemini-3-flash")
REPLIES = [
    ("What is the capital of France?", "Paris"),
    ("What is 17 times 23?", "17 * 23 = 391"),
    ("What is the capital of Australia?", "The capital of Australia is Sydney."),
    (
        "Write a haiku about rain.",
        "Soft rain on the roof\nA night that listens\nMorning smells of earth",
    ),
    ("Which planet is the largest?", "Jupiter is the largest planet."),
]


@pytest.mark.parametrize(
    ("name", "rated_as"),
    [
        ("gpt-6-sol", "gpt-5.4"),
        ("gpt-6.1-sol", "gpt-5.4"),
        ("gpt-6-astra", "gpt-5.4"),
        ("openai/GPT-6-Luna", "gpt-5.4-mini"),
        ("gpt-6-nano", "gpt-5.4-nano"),
        ("claude-opus-5-5", "claude-opus-4.8"),
        ("anthropic/claude-opus-5-5-20260901", "claude-opus-4.8"),
        ("claude-sonnet-5.5", "claude-sonnet-5"),
        ("claude-haiku-5", "claude-haiku-4.5"),
        ("gemini-4-flash", "gemini-3-flash"),
        ("gemini-4-pro", None),
        ("gpt-4.1", None),
        ("gpt-6-codex", None),
        ("openai/gpt-6-sol:free", "gpt-5.4"),
        ("gpt-6-sol@latest", "gpt-5.4"),
        ("AZURE/GPT-6.1-SOL-2026-11-20", "gpt-5.4"),
        ("openai.gpt-6-astra-preview", "gpt-5.4"),
        ("databricks-gpt-6", "gpt-5.4"),
        ("gpt-6-sol-mini", "gpt-5.4-mini"),
        ("gpt-6-astra-nano:free", "gpt-5.4-nano"),
        ("GPT-6.1-Mini@latest", "gpt-5.4-mini"),
        ("gpt-6-codex-mini", "gpt-5.4-mini"),
        ("ft:gpt-6-luna:acme::9a", "gpt-5.4-mini"),
        ("gpt-6-sol:nano", "gpt-5.4-nano"),
        ("us.anthropic.claude-opus-5-5-20260901-v1:0", "claude-opus-4.8"),
        ("claude-sonnet-5-5@20260901", "claude-sonnet-5"),
        ("anthropic/claude-5.5-sonnet:thinking", "claude-sonnet-5"),
        ("claude-opus-5.5-mini", "claude-haiku-4.5"),
        ("models/gemini-4-flash-002", "gemini-3-flash"),
        ("gemini-4-nano", "gemini-3-flash"),
        ("my-gpt-6-clone", None),
        ("my-company-llm", None),
        ("", None),
        ("-" * 10_000, None),
    ],
)
def test_the_predecessor(name: str, rated_as: str | None) -> None:
    """The predecessor is the last version before of the same line and size, or None."""
    assert predecessor(name, KNOWN) == rated_as


@pytest.mark.parametrize("name", ["openai/gpt-5:free", "gpt-5@latest", "GPT-5-2026-01-31"])
def test_what_gateways_add_to_a_known_name_changes_nothing(name: str) -> None:
    """A known model with a price, a version or a date is rated under its own name."""
    assert Predecessors(KNOWN).rated_as(name) == "gpt-5"


def test_known_names_and_those_of_operators_stay() -> None:
    """Only a new model of a known line is rated under another name."""
    names = Predecessors(KNOWN)
    assert names.rated_as("openai/gpt-5") == "openai/gpt-5"
    assert names.rated_as("my-company-llm") == "my-company-llm"
    assert names.rated_as(None) is None
    item = Item("Why?", "Because.", "gpt-5")
    assert names.of_items([item])[0] is item


@pytest.fixture(scope="module")
def embedded() -> Scorer:
    return load_scorer("embedded")


def confidences(scorer: Scorer, model: str) -> list[float]:
    items = [Item(question, answer, model) for question, answer in REPLIES]
    return [score.confidence for score in scorer.score_batch(items)]


@pytest.mark.parametrize(
    ("successor", "elder"),
    [
        ("gpt-6-sol", "gpt-5.4"),
        ("gpt-6.1-sol", "gpt-6-sol"),
        ("gpt-6-astra", "gpt-5.4"),
        ("gpt-6-luna", "gpt-5.4-mini"),
        ("claude-opus-5-5", "claude-opus-4.8"),
        ("claude-sonnet-5.5", "claude-sonnet-5"),
        ("openai/GPT-6-Sol:free", "gpt-5.4"),
        ("gpt-6.1-2026-11-20", "gpt-6-sol@latest"),
        ("gpt-6-sol-mini", "gpt-5.4-mini"),
        ("anthropic.claude-opus-5-5-20260901-v1:0", "claude-opus-4.8"),
    ],
)
def test_a_successor_is_not_rated_below_its_predecessor(
    embedded: Scorer, successor: str, elder: str
) -> None:
    """No reply has less confidence under the newer name."""
    pairs = zip(confidences(embedded, successor), confidences(embedded, elder), strict=True)
    assert all(newer >= older for newer, older in pairs)


@pytest.mark.parametrize(
    ("small", "large"),
    [
        ("gpt-6-luna", "gpt-6-sol"),
        ("openai/gpt-6-mini:free", "gpt-6"),
        ("gpt-6-nano@latest", "gpt-6-luna"),
        ("GPT-6.1-SOL-MINI", "gpt-6.1-sol"),
        ("gpt-6-astra-nano-2026-11-20", "gpt-6-astra"),
        ("claude-opus-5-5-mini", "claude-opus-5-5"),
        ("claude-haiku-5.5", "claude-sonnet-5.5"),
        ("gemini-4-flash-lite", "gemini-4-flash"),
    ],
)
def test_a_small_variant_is_not_rated_above_the_large_one(
    embedded: Scorer, small: str, large: str
) -> None:
    """No reply has more confidence under the smaller name."""
    pairs = zip(confidences(embedded, small), confidences(embedded, large), strict=True)
    assert all(lesser <= greater for lesser, greater in pairs)
