"""Make text of kinds that no benchmark has, so that the calibrator is not bold about it.

A calibrator trained on benchmarks alone gives confident numbers for poems, letters and gibberish.
Outlier exposure (Hendrycks et al., 2019) shows it such text in training with the base rate as a
soft label, so that unfamiliar text gets a confidence near the base rate. The requests are ours,
the passages come from Python's own documentation and from random pieces of the vocabulary.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from pydoc_data.topics import topics

from calibrator.rows.rows import Row
from calibrator.scorer import Item

REQUESTS = (
    "Write a short poem about {}.", "Write me a limerick with the word {} in it.",
    "Rewrite this e-mail so that it sounds friendlier: {}", "Summarise the following text: {}",
    "Translate into Spanish: {}", "Traduis en français : {}", "Übersetze bitte ins Deutsche: {}",
    "Give me ten names for a shop that sells {}.", "Continue the story: {}",
    "hi, how are you today?", "thanks, that was helpful!", "ok", "Tell me a joke about {}.",
    "What should I cook tonight? I have {} at home.", "Plan a weekend for two who like {}.",
    "Explain {} to a five year old.", "Write a cover letter for a job as {}.",
    "My boss ignores my messages about {}. What should I do?", "I feel sad today.",
    "Act as a pirate and talk about {}.", "Write a birthday card for my aunt, she loves {}.",
    "Brainstorm slogans for {}.", "Improve the wording: {}", "Draft a tweet about {}.",
    "What do you think of {}?", "Make a packing list for {}.", "Write a product description: {}",
    "Turn these notes into minutes of a meeting: {}", "Fix the grammar: {}", "¿Qué opinas de {}?",
    "Schreibe einen kurzen Brief über {}.", "Describe a painting of {}.", "{}", "{} ???",
    "Roleplay: you are a shopkeeper, I ask for {}.", "Make a workout plan around {}.",
    "What is your opinion, should I buy {}?", "Extract all names from this text: {}",
    "Write a changelog entry for: {}", "Write release notes. Topic: {}", "Reply to this review: {}",
    "Convert to a bullet list: {}", "Generate a title for: {}", "Write a song chorus about {}.",
    "Explain this log line: {}", "Write a commit message for a change to {}.",
    "Can you help me with {}?", "Invent a word for {} and define it.", "Compose a haiku. {}",
)  # fmt: skip


def _passages() -> list[str]:
    """Return the paragraphs of Python's own help topics that have more than 60 characters."""
    return [
        part.strip() for text in topics.values() for part in text.split("\n\n") if len(part) > 60
    ]


class OutlierSource:
    """A source of items unlike any benchmark's; the same seed draws the same items."""

    def __init__(self, rng: random.Random, vocabulary: Sequence[str]) -> None:
        """Collect the passages, and the words of `vocabulary` that are letters, three or more."""
        self._rng = rng
        self._passages = _passages()
        self._words = [word for word in vocabulary if word.isalpha() and len(word) > 2]

    def draw(self) -> Item:
        """Draw a question and an answer that has nothing to do with it.

        The question is a request such as `Write a short poem about ..`, filled with random text;
        the answer is random text.
        """
        rng = self._rng
        question = rng.choice(REQUESTS).replace("{}", self._text(max_passages=2))
        answer = self._text(max_passages=rng.choice((1, 2, 6)))
        return Item(question, answer)

    def row(self, number: int) -> Row:
        """Draw an item as a row without label, model and benchmark.

        Its question id is `outlier <number>`.
        """
        item = self.draw()
        return Row(
            item.question, item.answer, None, None, None, f"outlier {number}", None, None, {}
        )

    def _text(self, max_passages: int) -> str:
        """Return random words, in one of four cases, or one to `max_passages` passages.

        The words of the passages are shuffled in one of three cases, and the text is cut to 40,
        120, 400 or 2,000 characters.
        """
        rng, kind = self._rng, self._rng.random()
        if kind < 0.25:
            return " ".join(rng.choices(self._words, k=rng.choice((1, 2, 3, 8, 30, 80))))
        passages = rng.choices(self._passages, k=rng.randint(1, max_passages))
        text = "\n\n".join(passages)
        if kind < 0.5:
            words = text.split()
            rng.shuffle(words)
            text = " ".join(words)
        return text[: rng.choice((40, 120, 400, 2_000))]
