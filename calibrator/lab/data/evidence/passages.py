"""Passages about invented people, places and things, and claims about them."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from calibrator.lab.data.evidence.words.templates import (
    capital,
    choose_words,
    data,
    fill,
    slots_of,
    tidy,
)
from calibrator.lab.data.evidence.words.values import (
    FactValue,
    Style,
    is_different,
    other_value,
    parse_slot,
    write,
)

Row = dict[str, str]
Answer = tuple[str, str]
NAMES = ("person", "place", "organisation", "product", "object", "subject")
# Claims of these kinds always name their subject, so that two such texts can be combined.
REPEATABLE = ("biography",)


@dataclass
class Story:
    """A synthetic text: its kind, values by slot, the facts in it and those left out."""

    spec: dict[str, Any]
    values: dict[str, FactValue]
    facts: list[dict[str, Any]]
    left_out: list[dict[str, Any]]
    style: Style
    detail: tuple[str, str] = ("", "")  # a sentence of the text and a detail at its end

    def say(
        self, template: str, rng: random.Random, style: Style | None = None, **changed: FactValue
    ) -> str:
        """Fill a template with the story's values, some replaced by `changed`, and return the text.

        `style` spells the values; the story's own style if it is None.
        """
        values = {**self.values, **changed}
        texts = {slot: write(value, style or self.style, rng) for slot, value in values.items()}
        return fill(choose_words(template, rng), texts)

    def reply_style(self, rng: random.Random) -> Style:
        """Return a style for a reply: the text's own in 60 % of the cases, else a drawn one.

        The currency is always that of the text.
        """
        return self.style if rng.random() < 0.6 else Style.draw(rng, self.style.currency)


def random_story(rng: random.Random, kind: str, taken: set[str]) -> Story:
    """Draw a story of a kind of `words/stories.yaml`, such as `biography`.

    Its names differ from those in `taken`, to which they are added. The first fact is always
    shown and at least one is left out.
    """
    spec = data("stories")[kind]
    values: dict[str, FactValue] = {}
    for slot, text in spec["slots"].items():
        values[slot] = _value(text, values, taken, rng)
    facts = [
        fact["else"] if "else" in fact and rng.random() < 0.5 else fact for fact in spec["facts"]
    ]
    first, later = facts[0], facts[1:]
    rng.shuffle(later)
    count = rng.randint(2, len(later) - 1)
    in_context = [first, *sorted(later[:count], key=facts.index)]
    return Story(spec, values, in_context, later[count:], Style.draw(rng))


def _value(
    text: str, values: dict[str, FactValue], taken: set[str], rng: random.Random
) -> FactValue:
    """Draw a value from a slot's text: `person`, `year 1900 1950`, `after born 20 30`, ..

    `after` is a year that many years after the slot in `values`. Names share no word with those
    in `taken`, to which they are added. Other values differ from those in `values` if possible.
    """
    unit, *rest = text.split()
    if unit in NAMES:
        for _ in range(100):
            name = _name(unit, rng)
            if name not in taken and not {*name.split()} & {w for t in taken for w in t.split()}:
                break
        taken.add(name)
        return FactValue(unit, name)
    if unit == "year":
        return FactValue("year", str(rng.randint(int(rest[0]), int(rest[1]))))
    if unit == "after":
        return FactValue(
            "year", str(int(values[rest[0]].raw) + rng.randint(int(rest[1]), int(rest[2])))
        )
    for _ in range(50):
        drawn = parse_slot(text, rng)
        assert drawn is not None, f"the slot {text!r} has no values"
        value = drawn
        if all(value.unit != other.unit or is_different(value, other) for other in values.values()):
            break
    return value


def _name(unit: str, rng: random.Random) -> str:
    """Draw a name of a unit such as `person` (`Ann Smith`) or `place`."""
    if unit == "person":
        return f"{rng.choice(data('names')['given'])} {rng.choice(data('names')['family'])}"
    return str(rng.choice(data("names")[unit]))


def story_text(story: Story, rng: random.Random) -> str:
    """Return the story as prose: a sentence for each shown fact, and up to two without facts.

    In 40 % of the cases one sentence gets a detail at its end, which is noted in
    `story.detail`, in place.
    """
    sentences = [story.say(rng.choice(fact["text"]), rng) for fact in story.facts]
    if rng.random() < 0.4:
        at = rng.randrange(len(sentences))
        if sentences[at].endswith("."):
            story.detail = (sentences[at][:-1], rng.choice(data("edits")["details"]))
            sentences[at] = f"{sentences[at][:-1]} {story.detail[1]}."
    for filler in rng.sample(data("names")["story_filler"], rng.choice((0, 0, 1, 2))):
        sentences.insert(rng.randint(1, len(sentences)), filler)
    return " ".join(sentences)


# --- claims ---------------------------------------------------------------------------------------

Fact = dict[str, Any]


def claim(story: Story, fact: Fact, rng: random.Random) -> Answer:
    """Return (question, reply) about a fact; the reply states the fact or its value alone."""
    style = story.reply_style(rng)
    if fact["ask"] and rng.random() < 0.35:
        question, slot = rng.choice(fact["ask"])
        return story.say(question, rng), _short_answer(write(story.values[slot], style, rng), rng)
    form = rng.choice(fact["claim"])
    return _question(story, fact, form, rng), story.say(form, rng, style)


def _question(story: Story, fact: Fact, form: str, rng: random.Random) -> str:
    """Return a question that a claim from the template `form` answers, or a general one."""
    fitting = [question for question, slot in fact["ask"] if slot in slots_of(form)]
    if fitting and rng.random() < 0.8:
        return story.say(rng.choice(fitting), rng)
    return rng.choice(
        ("What does the text say?", "What do you know about this?", "Tell me about it.")
    )


def _short_answer(value: str, rng: random.Random) -> str:
    """Return a value as an answer of one to four words more, such as `It was 1920.`."""
    text = rng.choice(("{0}", "{0}.", "It was {0}.", "The answer is {0}.")).format(value)
    return tidy(text)


def false_claim(
    story: Story, fact: Fact, near: list[FactValue], rng: random.Random
) -> Answer | None:
    """Return (question, reply) that contradicts a fact; None if no value was changed.

    A listed wrong statement of the fact, or one value replaced; the main subject's name stays
    if others can change. `near` are values of neighbouring texts, which may be used.
    """
    if "wrong" in fact and rng.random() < 0.5:
        form = rng.choice(fact["wrong"])
        return _question(story, fact, form, rng), story.say(form, rng)
    style = story.reply_style(rng)
    fixed = fact.get("fixed", [])
    if fact["ask"] and rng.random() < 0.35:
        question, slot = rng.choice(fact["ask"])
        new = _other_value(story, slot, near, rng) if slot not in fixed else None
        if new is not None and slot not in slots_of(question):
            return story.say(question, rng), _short_answer(write(new, style, rng), rng)
    form = rng.choice(fact["claim"])
    slots = sorted(slot for slot in slots_of(form) if slot not in fixed)
    # A claim with another name of the main subject would be about another person.
    main = next(iter(story.spec["slots"]))
    slots = [slot for slot in slots if slot != main] or slots
    if not slots:
        return None
    slot = rng.choice(slots)
    new = _other_value(story, slot, near, rng)
    if new is None or new in [story.values[other] for other in slots_of(form)]:
        return None
    return _question(story, fact, form, rng), story.say(form, rng, style, **{slot: new})


def _other_value(
    story: Story, slot: str, near: list[FactValue], rng: random.Random
) -> FactValue | None:
    """Return another value for a slot: of the same text, of a text beside it, or a new one.

    For names and years it is one of the same unit, or a new name or a year near. None if there
    is none.
    """
    value = story.values[slot]
    spec = story.spec["slots"][slot]
    if value.unit in NAMES or value.unit == "year":
        everything = [*story.values.values(), *near]
        same = [each for each in everything if each.unit == value.unit and each != value]
        if value.unit == "year":
            same += [
                FactValue("year", str(int(value.raw) + step)) for step in (-10, -3, -1, 1, 2, 5, 20)
            ]
        elif not same or rng.random() < 0.2:
            same = [FactValue(value.unit, _name(value.unit, rng))]
        same = [each for each in same if each != value]
        return rng.choice(same) if same else None
    return other_value(value, spec, [*story.values.values(), *near], rng)


def state_order(story: Story, right: bool, rng: random.Random) -> Answer | None:
    """Return (question, reply) that states which of two dated facts came first, rightly or wrongly.

    None if fewer than two shown facts have dates, or the drawn two have the same.
    """
    dated = [fact for fact in story.facts if "when" in fact]
    if len(dated) < 2:
        return None
    one, other = rng.sample(dated, 2)
    first, second = (float(story.values[fact["when"]].raw) for fact in (one, other))
    if first == second:
        return None
    word = "before" if (first < second) == right else "after"
    texts = [story.say(fact["event"], rng) for fact in (one, other)]
    low = [_lower_article(text) for text in texts]
    form = rng.choice(("{0} came {w} {1}.", "{0} was {w} {1}.", "{W} {1} came {0}."))
    text = form.format(*low, w=word, W=capital(word))
    return f"What came first, {low[0]} or {low[1]}?", capital(text)


def _lower_article(text: str) -> str:
    """Return the text with a small first letter if it begins with `The` or `A`."""
    return text[0].lower() + text[1:] if text.startswith(("The ", "A ")) else text


def state_relation(story: Story, right: bool, rng: random.Random) -> Answer | None:
    """Return (question, reply) on two names' relation, right (`A hired B`) or the wrong way round.

    None if the shown facts name no pair with such a relation.
    """
    pairs = []
    for pair in story.spec.get("pairs", []):
        forms = pair.split("|")
        if any(slots_of(forms[0]) <= slots_of(" ".join(fact["text"])) for fact in story.facts):
            pairs.append(forms)
    if not pairs:
        return None
    return "What does the text say?", story.say(rng.choice(pairs)[0 if right else 1], rng)


# --- rows -----------------------------------------------------------------------------------------


def rows(rng: random.Random, group: str) -> Iterator[Row]:
    """Yield the rows about a text of one to four stories: up to two replies of each label.

    All share `premise` (the text) and `group`. `question` is empty in 30 % of the rows whose
    reply is clear without it; a reply that cannot be made is skipped.
    """
    stories = _stories(rng)
    premise = _join_texts([story_text(story, rng) for story in stories], rng)
    for label, makers in MAKERS.items():
        for _ in range(2):
            story = rng.choice(stories)
            near = [v for other in stories if other is not story for v in other.values.values()]
            maker = rng.choices(list(makers), list(makers.values()))[0]
            found = maker(story, near, rng) or next(iter(makers))(story, near, rng)
            if found is None:
                continue
            question, text = found
            # A short answer has no meaning without its question.
            needed = len(text.split()) < 6 or maker in (unknown_right, unknown_wrong)
            yield {
                "kind": "passages",
                "group": group,
                "premise": premise,
                "question": question if needed or rng.random() < 0.7 else "",
                "hypothesis": text,
                "label": label,
            }


def _stories(rng: random.Random) -> list[Story]:
    """Draw one to four stories with one style and different names; two may be of the same kind."""
    kinds = list(data("stories"))
    count = rng.choice((1, 1, 1, 2, 3, 4))
    chosen = rng.sample(kinds, count)
    if count > 1 and rng.random() < 0.4:
        chosen = [*REPEATABLE, *REPEATABLE, *(kind for kind in chosen if kind not in REPEATABLE)]
        rng.shuffle(chosen)
    taken: set[str] = set()
    stories = [random_story(rng, kind, taken) for kind in chosen]
    for story in stories:
        story.style = stories[0].style
    return stories


def _join_texts(texts: list[str], rng: random.Random) -> str:
    """Join texts by empty lines, mostly with numbers such as `[1]`; one alone stays as it is."""
    if len(texts) == 1:
        return texts[0]
    mark = rng.choice(
        ("[{n}] {t}", "Document {n}: {t}", "Passage {n}\n{t}", "{t}", "<doc id={n}>\n{t}\n</doc>")
    )
    return "\n\n".join(mark.format(n=n, t=text) for n, text in enumerate(texts, 1))


Maker = Callable[[Story, list[FactValue], random.Random], Answer | None]


def right_claim(story: Story, _near: list[FactValue], rng: random.Random) -> Answer:
    """Return (question, reply) with a claim that the text makes."""
    return claim(story, rng.choice(story.facts), rng)


def right_twice(story: Story, _near: list[FactValue], rng: random.Random) -> Answer:
    """Return (question, reply) with two claims that the text makes."""
    texts = [_sentence(story, fact, rng) for fact in rng.sample(story.facts, 2)]
    return "What does the text say?", " ".join(texts)


def _sentence(story: Story, fact: Fact, rng: random.Random) -> str:
    """Return a sentence that states a fact of the story, in a style for replies."""
    return story.say(rng.choice(fact["claim"]), rng, story.reply_style(rng))


def right_order(story: Story, _near: list[FactValue], rng: random.Random) -> Answer | None:
    """Return (question, reply) with a right claim about an order or relation; None without one."""
    return state_order(story, True, rng) or state_relation(story, True, rng)


def unknown_right(story: Story, _near: list[FactValue], rng: random.Random) -> Answer | None:
    """Return a question that the text leaves open, and the right answer that it does not say.

    None if no question is known about the facts that were left out.
    """
    return _answer_unknown(story, story.left_out, rng)


def wrong_claim(story: Story, near: list[FactValue], rng: random.Random) -> Answer | None:
    """Return (question, reply) with a claim that contradicts the text; None if none can be made."""
    for fact in rng.sample(story.facts, len(story.facts)):
        found = false_claim(story, fact, near, rng)
        if found is not None:
            return found
    return None


def wrong_beside_right(story: Story, near: list[FactValue], rng: random.Random) -> Answer | None:
    """Return (question, reply) with a wrong claim and a right one, in random order.

    None if no wrong claim can be made or it has fewer than five words.
    """
    found = wrong_claim(story, near, rng)
    if found is None or len(found[1].split()) < 5:
        return None
    texts = [found[1], _sentence(story, rng.choice(story.facts), rng)]
    rng.shuffle(texts)
    return "What does the text say?", " ".join(texts)


def wrong_order(story: Story, _near: list[FactValue], rng: random.Random) -> Answer | None:
    """Return (question, reply) with a wrong claim about an order or relation; None without one."""
    return state_order(story, False, rng) or state_relation(story, False, rng)


def unknown_wrong(story: Story, _near: list[FactValue], rng: random.Random) -> Answer | None:
    """Return a question that the text answers, and the wrong answer that it does not say.

    None if no question is known about its facts.
    """
    return _answer_unknown(story, story.facts, rng)


def absent_claim(story: Story, _near: list[FactValue], rng: random.Random) -> Answer:
    """Return (question, reply) with a claim about a fact that the text leaves out."""
    return claim(story, rng.choice(story.left_out), rng)


def absent_beside_right(story: Story, _near: list[FactValue], rng: random.Random) -> Answer:
    """Return (question, reply) with a claim of the text and one that it does not make."""
    facts = [rng.choice(story.facts), rng.choice(story.left_out)]
    rng.shuffle(facts)
    return "What does the text say?", " ".join(_sentence(story, fact, rng) for fact in facts)


def added_detail(story: Story, _near: list[FactValue], rng: random.Random) -> Answer:
    """Return (question, reply) with a sentence of the text and a detail that is not in it."""
    sentence, stated = story.detail
    if not sentence or rng.random() < 0.5:
        sentence = _sentence(story, rng.choice(story.facts), rng)[:-1]
    details = [detail for detail in data("edits")["details"] if detail != stated]
    return "What does the text say?", f"{sentence} {rng.choice(details)}."


def stated_detail(story: Story, _near: list[FactValue], _rng: random.Random) -> Answer | None:
    """Return (question, reply) with the sentence that has a detail, in full; None without one."""
    sentence, stated = story.detail
    return ("What does the text say?", f"{sentence} {stated}.") if sentence else None


def without_detail(story: Story, _near: list[FactValue], _rng: random.Random) -> Answer | None:
    """Return (question, reply) with the sentence that has a detail, without the detail, or None."""
    sentence, _ = story.detail
    return ("What does the text say?", f"{sentence}.") if sentence else None


def _answer_unknown(story: Story, facts: list[Fact], rng: random.Random) -> Answer | None:
    """Return a question about one of `facts`, and an answer such as `The text does not say.`.

    None if no question about them is known.
    """
    asks = [ask for fact in facts for ask in fact["ask"]]
    if not asks:
        return None
    form = choose_words(rng.choice(data("names")["no_information"][:5]), rng)
    form = (
        form.replace("our rules", "the text")
        .replace("our documents", "the text")
        .replace("text say ", "text says ")
        .replace("my documents say", "the texts say")
    )
    return story.say(rng.choice(asks)[0], rng), fill(
        form.replace("policy", "text"), {"topic": "it"}
    )


MAKERS: dict[str, dict[Maker, int]] = {
    "entail": {
        right_claim: 10,
        right_twice: 3,
        right_order: 3,
        unknown_right: 2,
        stated_detail: 4,
        without_detail: 1,
    },
    "contradict": {wrong_claim: 10, wrong_beside_right: 3, wrong_order: 3, unknown_wrong: 2},
    "neutral": {absent_claim: 10, absent_beside_right: 4, added_detail: 3},
}
