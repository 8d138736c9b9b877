"""An operator's file of facts: read strictly, and searched by questions."""

from __future__ import annotations

import json
import time
from collections.abc import Sequence
from pathlib import Path

import pytest

from calibrator import Pinocchio
from calibrator.errors import InputError
from calibrator.loading import load_scorer
from calibrator.readers.evidence.facts import fact_file
from calibrator.readers.evidence.facts.fact_file import (
    MOST_CHARACTERS,
    MOST_FOUND,
    FactFile,
    load_facts,
)
from calibrator.scorer import CONTEXT, FACTS, LIKENESS, Item, Score, Scorer

COMPANY = Path(__file__).parents[4] / "examples" / "facts" / "company.jsonl"
LAMP = {"name": "Aria desk lamp", "text": "The Aria desk lamp costs 59 euros."}


@pytest.fixture(scope="module")
def company() -> FactFile:
    return load_facts(COMPANY)


@pytest.fixture(scope="module")
def scorer() -> Scorer:
    return load_scorer("embedded", threads=1)


def written(folder: Path, *lines: object) -> Path:
    """Write a file of facts; a line that is a text is written unchanged."""
    path = folder / "company.jsonl"
    texts = [line if isinstance(line, str) else json.dumps(line) for line in lines]
    path.write_text("\n".join(texts) + "\n", encoding="utf-8")
    return path


def chat_item(question: str, answer: str, *before: str) -> Item:
    """Return an item of a chat, with earlier questions of the user."""
    messages = [{"role": "user", "content": text} for text in (*before, question)]
    return Item(question, answer, messages=messages)


def names(found: Sequence[str]) -> list[str]:
    return [text.partition(":")[0] for text in found]


# The file


@pytest.mark.parametrize(
    ("line", "problem"),
    [
        ("{name: lamp}", "not JSON"),
        ('["Aria", "costs 59"]', "a fact is an object with a name and a text, not a list"),
        ({"text": "costs 59"}, "'name' is missing"),
        ({"name": "Aria"}, "'text' is missing"),
        ({"name": "Aria", "text": "  "}, "'text' is empty"),
        ({"name": "", "text": "costs 59"}, "'name' is empty"),
        ({"name": 7, "text": "costs 59"}, "'name' must be a string, not a number"),
        ({"name": "Aria", "text": None}, "'text' must be a string, not null"),
        ({"name": "Aria", "text": "x", "price": 59}, "unknown key 'price'"),
        ({"name": "n" * 201, "text": "x"}, "'name' has 201 characters; 200 are the most"),
        ({"name": "n", "text": "x" * 200_001}, "'text' has 200,001 characters"),
        ("[" * 100_000, "not JSON"),
    ],
)
def test_a_mistake_is_named_with_its_line(tmp_path: Path, line: object, problem: str) -> None:
    """A mistake is reported with path and line; blank lines are skipped and counted."""
    path = written(tmp_path, LAMP, "", line)
    with pytest.raises(InputError) as raised:
        load_facts(path)
    assert str(raised.value).startswith(f"{path}:3: {problem}")


def test_several_mistakes_are_reported_at_once(tmp_path: Path) -> None:
    """The first five mistakes are reported at once."""
    with pytest.raises(InputError) as raised:
        load_facts(written(tmp_path, *["{}"] * 9))
    assert len(str(raised.value).splitlines()) == 5


def test_other_files_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Missing, empty, wrongly encoded and too large files are refused."""
    with pytest.raises(InputError, match=r"none\.jsonl cannot be used: No such file"):
        load_facts(tmp_path / "none.jsonl")
    with pytest.raises(InputError, match="no facts in it"):
        load_facts(written(tmp_path, ""))
    latin = tmp_path / "latin.jsonl"
    latin.write_bytes('{"name": "Café", "text": "open"}'.encode("latin-1"))
    with pytest.raises(InputError, match=r"latin\.jsonl:1: not UTF-8"):
        load_facts(latin)
    monkeypatch.setattr(fact_file, "MOST_BYTES", 10)
    with pytest.raises(InputError, match="larger than"):
        load_facts(written(tmp_path, LAMP))


# The search


@pytest.mark.parametrize(
    ("question", "answer", "name"),
    [
        ("how much is the aria desk lamp", "59 euros.", "Aria desk lamp"),
        ("How tall is the Borea?", "It is 152 cm tall.", "Borea floor lamp"),
        ("Do you ship to Switzerland?", "No, we do not.", "Shipping"),
        ("What is your returns policy?", "Within 30 days of delivery.", "Returns"),
        ("Can I pay by invoice?", "Companies can.", "Payment"),
        ("Which lamp can I use in a bathroom?", "The Corvo wall lamp, for 74 euros.", "Corvo"),
    ],
)
def test_a_question_finds_its_fact(
    company: FactFile, question: str, answer: str, name: str
) -> None:
    """A question finds its fact by name, rare word, words of the text, or a name in the reply."""
    assert names(company.about_item(chat_item(question, answer)))[0].startswith(name)


def test_a_question_that_goes_on_is_read_with_the_one_before(company: FactFile) -> None:
    """A question like "And in white?" is read with the one before."""
    item = chat_item("And in white?", "Yes, white too.", "How much is the Aria desk lamp?")
    assert names(company.about_item(item)) == ["Aria desk lamp"]


@pytest.mark.parametrize(
    ("question", "answer"),
    [
        ("What is the capital of France?", "Paris."),
        ("What is 59 plus 189?", "248"),
        ("Write a function that returns the sum of two numbers.", "def add(a, b): return a + b"),
        ("In what year was Westbrook College founded?", "It was founded in 2009."),
        ("Who holds the world record for the 100 metres?", "Usain Bolt."),
        ("Thanks!", "You are welcome."),
        ("", ""),
    ],
)
def test_other_questions_find_nothing(company: FactFile, question: str, answer: str) -> None:
    """Shared common words, numbers and one word of many find nothing."""
    assert company.about_item(chat_item(question, answer)) == ()


def test_a_name_that_is_also_a_common_word_needs_more(tmp_path: Path) -> None:
    """A name that is also a common word needs more words to be found."""
    text = "The Mercury is a router. It costs 39 euros and has 4 ports."
    facts = load_facts(written(tmp_path, {"name": "Mercury", "text": text}))
    assert facts.about("What does the Mercury cost?", "39 euros.")
    assert not facts.about("Is Mercury the planet that is nearest to the sun?", "Yes, Mercury is.")
    assert not facts.about("Which planet is nearest to the sun?", "Mercury.")


def test_the_right_part_of_a_long_text_is_found(tmp_path: Path) -> None:
    """The right part of a long text is found, within a few thousand characters."""
    rules = [f"Paragraph {at} says that machine model{at} needs service." for at in range(1_200)]
    rules[700] = "A zeppelin may land on the roof between 14:00 and 16:00."
    facts = load_facts(written(tmp_path, {"name": "Handbook", "text": "\n".join(rules)}))
    found = facts.about("When may a zeppelin land on the roof?", "Between 14:00 and 16:00.")
    assert "A zeppelin may land" in found[0]
    assert len(found) <= MOST_FOUND
    assert sum(map(len, found)) <= MOST_CHARACTERS


def test_ten_thousand_facts_cost_less_than_a_millisecond(tmp_path: Path) -> None:
    """A question to ten thousand facts takes less than a millisecond of CPU."""
    lines = [
        {
            "name": f"Item {at // 100}x{at} lamp",
            "text": f"Model mk{at} costs {at % 900} euros and weighs {at % 40} kg.",
        }
        for at in range(10_000)
    ]
    facts = load_facts(written(tmp_path, *lines))
    answer = "Model mk7007 costs 700 euros. " * 10

    def cost_s(question: str, answer: str) -> float:
        times = []
        for _ in range(20):
            began = time.thread_time()
            facts.about(question, answer)
            times.append(time.thread_time() - began)
        return min(times)

    assert facts.about("How much does model mk7007 cost?", answer)
    assert cost_s("How much does model mk7007 cost?", answer) < 0.001
    every = " ".join(f"mk{at}" for at in range(10_000))
    assert cost_s(every, every) < 0.02


# The score


def scored(scorer: Scorer, company: FactFile, item: Item) -> Score:
    item.facts = company.about_item(item)
    [score] = scorer.score_batch([item])
    return score


def test_a_reply_that_the_facts_contradict_is_less_sure(company: FactFile, scorer: Scorer) -> None:
    """A reply that contradicts the facts is less sure, with the facts as its basis and reason."""
    question = "How much is the Borea floor lamp?"
    right = scored(scorer, company, chat_item(question, "The Borea floor lamp costs 189 euros."))
    wrong = scored(scorer, company, chat_item(question, "The Borea floor lamp costs 129 euros."))
    assert right.basis == wrong.basis == (FACTS,)
    assert right.confidence > 0.5 > wrong.confidence
    assert right.unsupported == ()
    assert wrong.because == ("the facts say otherwise: 129",)
    assert [each.words for each in wrong.unsupported] == [("129",)]


def test_facts_stand_beside_the_context_of_the_conversation(
    company: FactFile, scorer: Scorer
) -> None:
    """Facts count beside the conversation's context, and the basis has both."""
    rules = "Summer sale: until 31 August every floor lamp is sold with a free bulb and a carrier."
    item = chat_item("How much is the Borea floor lamp?", "It costs 189 euros, with a free bulb.")
    item.messages = [{"role": "system", "content": rules}, *item.messages]
    assert scored(scorer, company, item).basis == (CONTEXT, FACTS)


def test_without_a_fact_that_fits_nothing_changes(company: FactFile, scorer: Scorer) -> None:
    """Without a fact that fits, the score is the same to the last bit."""
    for question, answer in (
        ("Who painted the Night Watch?", "Rembrandt painted it."),
        ("How do bees find their way?", "They go by the sun and by landmarks."),
    ):
        [plain] = scorer.score_batch([chat_item(question, answer)])
        assert scored(scorer, company, chat_item(question, answer)) == plain
        assert plain.basis == (LIKENESS,)


def test_the_facade_takes_a_file(scorer: Scorer, company: FactFile) -> None:
    """`Pinocchio(facts=..)` gives the scorer's score of an item with its facts."""
    question, answer = "How much is the Borea floor lamp?", "The Borea floor lamp costs 129 euros."
    judge = Pinocchio(facts=COMPANY)
    found = judge.score(answer, messages=[{"role": "user", "content": question}])
    assert found == scored(scorer, company, chat_item(question, answer)).confidence
