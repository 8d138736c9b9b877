"""The words, numbers and names of a reply compared with its context, as numeric features.

These features find additions: words, numbers and names that the context lacks. The reader
(`support.ContextReader`) finds statements that change the context in its own words.
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Final

from calibrator.readers.evidence.context.passages import (
    FREQUENT,
    WORD,
    Passages,
    number_of,
    stem,
    words_of,
)

MAX_REPLY: Final = 12_000  # characters that are compared
MAX_SENTENCES: Final = 60
_SENTENCE: Final = re.compile(r"(?<=[.!?])[\"')\]]*\s+|\n+|(?<=[\u3002\uff01\uff1f])")
_NEGATION: Final = re.compile(
    r"\b(?:no|not|never|none|nothing|nobody|neither|nor|without|cannot|isn|aren|wasn|weren|don"
    r"|doesn|didn|won|wouldn|can|couldn|shouldn|hasn|haven|hadn|mustn)(?:'t|\u2019t)\b"
    r"|\b(?:no|not|never|none|nothing|nobody|neither|nor|without|cannot|unable|except|excluded"
    r"|excluding|only)\b",
    re.IGNORECASE,
)
_YES: Final = re.compile(r"^\W*(?:yes|sure|of course|certainly|absolutely|correct|true)\b", re.I)
_NO: Final = re.compile(r"^\W*(?:no|unfortunately|sorry|false|incorrect)\b", re.I)
_OPPOSITES = """
    increase decrease  rise fall  before after  first last  more less  higher lower  above below
    open close  open closed  include exclude  included excluded  allow forbid  allowed forbidden
    accept refuse  accept decline  free paid  minimum maximum  early late  earlier later
    up down  buy sell  win lose  won lost  gain loss  start end  begin end  begins ends
    inside outside  left right  north south  east west  old new  older newer  young old
    big small  large small  larger smaller  long short  longer shorter  always never  all none
    same different  male female  man woman  men women  boy girl  husband wife  mother father
    brother sister  morning evening  am pm  approve reject  approved rejected  with without
    legal illegal  possible impossible  public private  internal external  indoor outdoor
    weekday weekend  weekdays weekends  monthly yearly  daily weekly  refundable non-refundable
    optional mandatory  optional required  day night  best worst  hot cold  import export
    success failure  succeed fail  succeeded failed  true false  positive negative
"""
_PAIRS: Final = _OPPOSITES.split()
OPPOSITES: Final[dict[str, set[str]]] = {}
for _first, _second in zip(_PAIRS[::2], _PAIRS[1::2], strict=True):
    OPPOSITES.setdefault(_first, set()).add(_second)
    OPPOSITES.setdefault(_second, set()).add(_first)

FEATURES: Final = (
    "covered",
    "covered_rare",
    "covered_worst",
    "covered_unit",
    "covered_unit_worst",
    "pairs",
    "run",
    "numbers",
    "numbers_missing",
    "numbers_far",
    "names",
    "names_missing",
    "negations",
    "opposites",
    "yes",
    "no",
    "words",
    "sentences",
    "context_words",
    "request_covered",
    "answered",
    "repeats_request",
    "new_words",
    "result_words",
)
"""Names of the features, in order; shares are 0 to 1, or -1 if there is nothing to count."""


@dataclass(slots=True)
class SentenceComparison:
    """One sentence of a reply beside the unit of the context that is closest to it."""

    text: str
    covered: float  # share of its words that occur in the context, by rarity
    covered_unit: float  # share of its words in the closest unit and its neighbours
    missing: list[str]  # numbers and names that the context lacks
    opposed: list[str]  # words whose opposite is in the closest unit
    has_other_negation: bool  # only one of sentence and unit is negated
    far: list[str]  # numbers that occur in the context, but not near the closest unit


@dataclass(slots=True)
class ContextComparison:
    """A reply compared with its context.

    `values` has one number for each of `FEATURES`, `sentences` the reply's sentences.
    `is_complete` is False if the reply was too long to be read whole.
    """

    values: list[float] = field(default_factory=list)
    sentences: list[SentenceComparison] = field(default_factory=list)
    is_complete: bool = True


def sentences_of(text: str) -> list[str]:
    """Return the sentences and lines of a text, stripped, without those that have no word."""
    found = [part.strip() for part in _SENTENCE.split(text) if part.strip()]
    return [part for part in found if WORD.search(part)]


def compare(reply: str, passages: Passages, request: str) -> ContextComparison:
    """Compare the first 12,000 characters and 60 sentences of a reply with its context.

    `request` is the user's instruction: its numbers and names do not count as missing. Without
    units every word is missing; a reply without words has no sentences.
    """
    text = reply[:MAX_REPLY]
    found = ContextComparison(is_complete=len(text) == len(reply))
    units = passages.units
    rarity = passages.rarity
    context_numbers = {number for unit in units for number in unit.numbers}
    topics = {stem(word) for word in words_of(request) if word not in FREQUENT}
    request_numbers = {number for word in words_of(request) if (number := number_of(word))}
    highest = max(rarity.values(), default=1.0)
    sentences = sentences_of(text)
    found.is_complete &= len(sentences) <= MAX_SENTENCES
    counts = _Counts()
    for sentence in sentences[:MAX_SENTENCES]:
        words = words_of(sentence)
        content = {stem(word) for word in words if word not in FREQUENT}
        weights = {each: rarity.get(each, highest) for each in content}
        total = math.fsum(weights.values()) or 1.0  # `sum` would depend on the order of sets
        shared = content & rarity.keys()
        near = _nearest_unit(passages, sentence)
        around = units[max(near - 1, 0) : near + 2] if units else []
        stems = set().union(*(unit.stems for unit in around))
        numbers = {number for word in words if (number := number_of(word))}
        near_numbers = set().union(*(unit.numbers for unit in around))
        names = _names(sentence)
        missing = sorted(numbers - context_numbers - request_numbers)
        lacking = [name for name in names if not _has_name(name, rarity, topics)]
        unit_words = set().union(*(unit.vocabulary for unit in around))
        opposed = sorted(
            word
            for word in set(words)
            if word not in unit_words and OPPOSITES.get(word, set()) & unit_words
        )
        near_text = units[near].text if units else ""
        other = bool(_NEGATION.search(sentence)) != bool(_NEGATION.search(near_text))
        far = sorted((numbers & context_numbers) - near_numbers - request_numbers)
        found.sentences.append(
            SentenceComparison(
                sentence,
                math.fsum(weights[each] for each in shared) / total if content else 1.0,
                math.fsum(weights[each] for each in shared & stems) / total if content else 1.0,
                [*missing, *lacking],
                opposed,
                other,
                far,
            )
        )
        counts.add(
            content, shared, numbers, missing, far, names, lacking, content - rarity.keys() - topics
        )
    found.values = _values(found, counts, passages, text, topics)
    return found


@dataclass(slots=True)
class _Counts:
    """The totals of all sentences of a reply, of content words, numbers and names."""

    content: int = 0
    shared: int = 0
    numbers: int = 0
    missing: int = 0
    far: int = 0
    names: int = 0
    lacking: int = 0
    new: int = 0

    def add(
        self,
        content: set[str],
        shared: set[str],
        numbers: set[str],
        missing: Sequence[str],
        far: Sequence[str],
        names: Sequence[str],
        lacking: Sequence[str],
        new: set[str],
    ) -> None:
        """Count one more sentence; the parameters are its words of each sort.

        `shared` are the content words that the context has, `missing` the numbers that
        neither context nor request has, `far` those that are elsewhere in the context,
        `lacking` the names without a source, `new` the content words without one.
        """
        self.content += len(content)
        self.shared += len(shared)
        self.numbers += len(numbers)
        self.missing += len(missing)
        self.far += len(far)
        self.names += len(names)
        self.lacking += len(lacking)
        self.new += len(new)


def _values(
    found: ContextComparison, counts: _Counts, passages: Passages, text: str, topics: set[str]
) -> list[float]:
    """Return the features of a reply, in the order of `FEATURES`.

    `text` is the reply and `topics` has the stems of the request's content words.
    """
    sentences = found.sentences
    covered = [each.covered for each in sentences] or [1.0]
    near = [each.covered_unit for each in sentences] or [1.0]
    words = words_of(text)
    pairs, run = _pairs_and_run(words, passages)
    reply_stems = {stem(word) for word in words if word not in FREQUENT}
    rarity = passages.rarity
    known = [unit.stems & topics for unit in passages.units]
    best = max((math.fsum(map(rarity.__getitem__, each)) for each in known), default=0.0)
    wanted = math.fsum(rarity.get(each, 0.0) for each in topics) or 1.0
    return [
        counts.shared / counts.content if counts.content else -1.0,
        sum(covered) / len(covered),
        min(covered),
        sum(near) / len(near),
        min(near),
        pairs,
        run,
        float(min(counts.numbers, 10)),
        counts.missing / counts.numbers if counts.numbers else -1.0,
        counts.far / counts.numbers if counts.numbers else -1.0,
        float(min(counts.names, 10)),
        counts.lacking / counts.names if counts.names else -1.0,
        sum(each.has_other_negation for each in sentences) / max(len(sentences), 1),
        float(min(sum(len(each.opposed) for each in sentences), 3)),
        float(bool(_YES.search(text))),
        float(bool(_NO.search(text))),
        float(min(len(words), 400)),
        float(min(len(sentences), 20)),
        float(min(sum(unit.words for unit in passages.units), 3000)),
        len(topics & passages.rarity.keys()) / len(topics) if topics else -1.0,
        best / wanted,
        len(reply_stems & topics) / len(reply_stems) if reply_stems else -1.0,
        counts.new / counts.content if counts.content else -1.0,
        float(min(counts.content, 100)),
    ]


def _nearest_unit(passages: Passages, sentence: str) -> int:
    """Return the index of the unit closest to a sentence; 0 also if there are no units."""
    close = passages.closeness(sentence)
    return max(range(len(close)), key=close.__getitem__) if close else 0


def _names(sentence: str) -> list[str]:
    """Return the capitalised words of a sentence after its first word, in lower case, in order."""
    words = list(WORD.finditer(sentence))
    return [
        match.group().lower()
        for match in words[1:]
        if match.group()[0].isupper()
        and match.group().lower() not in FREQUENT
        and len(match.group()) > 1
    ]


def _has_name(name: str, rarity: dict[str, float], topics: set[str]) -> bool:
    """Return whether the stem of a name is in `rarity` (the context's words) or the request's."""
    return stem(name) in rarity or stem(name) in topics


def _pairs_and_run(words: Sequence[str], passages: Passages) -> tuple[float, float]:
    """Return (share of the pairs of words, share of the longest run) that the context has.

    The run is the longest sequence of consecutive pairs that the context has. Both are -1.0 for
    fewer than two words.
    """
    own = list(pairwise(words))
    if not own:
        return -1.0, -1.0
    known = passages.pairs
    is_known = [pair in known for pair in own]
    longest = current = 0
    for each in is_known:
        current = current + 1 if each else 0
        longest = max(longest, current)
    return sum(is_known) / len(own), longest / len(own)
