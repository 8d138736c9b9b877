"""The probability that a text supports the values of a JSON reply.

Some counts of the reply (`FEATURES`) have weights of a logistic regression, which was fitted on
graded replies of two sources (`calibrator/readers/evidence/README.md`).
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from fractions import Fraction
from itertools import pairwise
from typing import Any, Final

from calibrator.readers.evidence.computed.basics.numbers import numbers_in
from calibrator.readers.evidence.computed.basics.word_lists import word_set
from calibrator.readers.evidence.computed.calendar.reading import dates_in, times_in
from calibrator.readers.evidence.computed.structured.json_replies import value_of
from calibrator.readers.evidence.computed.structured.json_requests import (
    JsonRequest,
    read_request,
    split_data,
)
from calibrator.readers.evidence.computed.structured.json_shapes import plain_key
from calibrator.readers.evidence.computed.structured.json_values import (
    COPIED,
    DATE_KEY,
    FREE,
    HALF_DAY,
    TIME_KEY,
    SourceText,
    fault_of_value,
    is_absence,
    leaves,
    may_be_computed,
    plain_words,
)
from calibrator.readers.evidence.conversation import Conversation
from calibrator.recalibration.curves import probability

FEATURES: Final = (
    "absent",  # values that are not in the text
    "partial",  # values with some words in the text
    "found",  # share of the values that are in the text
    "cut",  # values that are longer in the text
    "alien",  # values that are beside the word for another key
    "own",  # values that are beside the word for their key
    "clash",  # values of another kind than their key: no number, no date, no time
    "twice",  # values under two keys
    "rival",  # dates and times after which the user states another one that no value has
    "declined",  # values that an assistant proposed and the user declined
    "unused_words",  # share of the words of a short text that no value has
)
BASE: Final = -0.77
WEIGHTS: Final = (-2.44, -0.8, 1.22, -0.91, -0.15, 0.36, -2.11, -0.84, -1.21, -0.79, -0.68)
MAX_DATA: Final = 20_000  # characters of a text that are read
MAX_LEAVES: Final = 60
SHORT: Final = 60  # most words of a short text, which is mostly about the wanted values
MAX_COUNT: Final = 12  # a smaller number may be counted, and need not be in the text
NEAR: Final = 3  # words between a value and the word for its key
MOST: Final = 3  # largest count
_WORD: Final = re.compile(r"\d+(?:[.,:]\d+)+|[^\W_]+(?:['’][^\W\d_]+)?")
_SPEAKER: Final = re.compile(r"^(?P<who>[A-Za-z][\w ]{0,20}):[ \t]", re.MULTILINE)
_ASSISTS: Final = re.compile(
    r"agent|assistant|bot|system|ai$|clerk|operator|support", re.IGNORECASE
)
_DECLINES: Final = re.compile(
    r"\W*(?:no\b|nope|nah\b|not\b|actually|instead|i(?:'d| would) (?:rather|prefer)|(?:something"
    r"|anything|any) (?:else|different|other)|different|another|change|i don't"
    r"|are there (?:any )?other|do you have (?:any|some)|nein|lieber|doch)",
    re.IGNORECASE,
)
_COMMON: Final = word_set(
    "a an the and or of in on at to for from by with as is are was were be been it its this "
    "that these those i you we they he she me my your our their his her do does did has have "
    "had will would can could not no yes if so but about into there here what which who when "
    "where how please all any some want need like get give find show me us let's book play "
    "add put rate make look search der die das und oder ein eine für von mit zu im in ist "
    "sind bitte el la los y de un une le les du des et pour "
)
_INVENTS: Final = re.compile(
    r"\b(?:invent|make up|fictional|fake|sample|dummy|mock|random|imagine|generate|compose|suggest"
    r"|recommend|come up with|write|translate\w*|locali[sz]e\w*|übersetz\w*|tradu\w{1,8}"
    r"|anonymi[sz]e\w*|pseudonymi[sz]e\w*|redact\w*|mask|paraphrase\w*|rewrite|summari[sz]e"
    r"|json patch|merge patch|diff|encrypt|decode|encode|base64)\b",
    re.IGNORECASE,
)
_DURATION: Final = re.compile(r"P(?=\w)(?:\d+[YMWD]){0,4}(?:T(?:\d+(?:\.\d+)?[HMS]){1,3})?")
_GENERIC: Final = word_set("name number value id key item type is has of the in to code data")
_COUNTS: Final = re.compile(
    r"number|count|quantit|amount|price|cost|total|year|age$|rating_?value|num"
)


@dataclass(slots=True)
class ValueSupport:
    """The probability that the conversation supports the values of a reply, and doubtful values.

    A doubt is (key, value, `missing` or `contradicted`).
    """

    support: float
    doubts: tuple[tuple[str, str, str], ...] = ()


@dataclass(slots=True)
class _Data:
    """A text in words with the positions of each word.

    `declined` are the ranges of characters (start, end) of the assistant's turns that the next
    turn declines, such as an offer; `user_ranges` those of the turns of all others.
    """

    text: str
    words: list[str] = field(default_factory=list)
    raw: list[str] = field(default_factory=list)
    starts: list[int] = field(default_factory=list)
    places: dict[str, list[int]] = field(default_factory=dict)
    declined: list[tuple[int, int]] = field(default_factory=list)
    user_ranges: list[tuple[int, int]] = field(default_factory=list)

    def __post_init__(self) -> None:
        """Fill the words with their positions, and the ranges of declined and of others' turns."""
        for found in _WORD.finditer(self.text):
            for word in plain_words(found[0]).split():
                self.places.setdefault(word, []).append(len(self.words))
                self.words.append(word)
                self.raw.append(found[0])
                self.starts.append(found.start())
        turns = [(each.start(), each["who"], each.end()) for each in _SPEAKER.finditer(self.text)]
        turns.append((len(self.text), "", len(self.text)))
        for (start, who, begin), (end, _, next_begin) in pairwise(turns):
            if not _ASSISTS.search(who):
                self.user_ranges.append((begin, end))
            elif _DECLINES.match(self.text, next_begin):
                self.declined.append((start, end))

    def has(self, word: str) -> bool:
        """Return whether the text has a word, also with or without an ending of the plural."""
        if word in self.places:
            return True
        forms = (f"{word}s", f"{word}es", word[:-1])
        return len(word) > 3 and word.isalpha() and any(each in self.places for each in forms)

    def find(self, words: list[str]) -> list[int]:
        """Return the indexes at which these words follow each other; empty without any."""
        if not words:
            return []
        rarest = min(range(len(words)), key=lambda at: len(self.places.get(words[at], ())))
        starts = (place - rarest for place in self.places.get(words[rarest], ())[:50])
        return [at for at in starts if at >= 0 and self.words[at : at + len(words)] == words]


def support_of_values(conversation: Conversation, reply: str) -> ValueSupport | None:
    """Return how well a conversation supports the values of a JSON reply; None for other replies.

    The support is a probability, with up to five doubtful values.
    """
    read = features_of(conversation, reply)
    if read is None:
        return None
    features, doubts = read
    odds = BASE + sum(
        weight * features[name] for name, weight in zip(FEATURES, WEIGHTS, strict=True)
    )
    return ValueSupport(probability(odds), tuple(doubts[:5]))


def features_of(
    conversation: Conversation, reply: str
) -> tuple[dict[str, float], list[tuple[str, str, str]]] | None:
    """Return (`FEATURES` by name, doubtful values) of a JSON reply; None for another reply.

    None also if no JSON is wanted or the values are to be invented. A doubt is (key, value, kind).
    """
    value = value_of(reply)
    rules = conversation.rules[:MAX_DATA]
    request = conversation.request[:MAX_DATA]
    found = [leaf for leaf, _ in zip(leaves(value), range(MAX_LEAVES), strict=False)]
    if not found:
        return None
    wanted = read_request(rules, request)
    is_wanted = "json" in f"{rules}\n{request}".casefold() or any(
        shape.fields or shape.others or shape.items for shape in wanted.shapes
    )
    if not is_wanted:
        return None
    ask, text = split_data(rules, request)
    if _INVENTS.search(ask):
        return None
    earlier = "\n".join(
        f"{'User' if turn.role == 'user' else 'Assistant'}: {turn.text}"
        for turn in conversation.earlier
    )
    dialogue = f"{earlier}\nUser: {text}" if earlier else text
    data = _Data("\n\n".join((*conversation.results, dialogue))[:MAX_DATA])
    reading = _ValueLookup(
        data, SourceText(f"{rules}\n{data.text}"[: 2 * MAX_DATA]), wanted, found, ask
    )
    return reading.features(), reading.doubts


class _ValueLookup:
    """The look-up of the values of one JSON reply in the text.

    `counts` and `doubts` are its results.
    """

    def __init__(
        self,
        data: _Data,
        source: SourceText,
        wanted: JsonRequest,
        found: list[tuple[tuple[str, ...], Any]],
        ask: str,
    ) -> None:
        """Keep the texts and collect the stems of all keys; nothing is looked up yet.

        `found` are the reply's (path, value) pairs and `ask` is the request for JSON.
        """
        self.ask = ask.casefold()
        self.is_copied = COPIED.search(ask) is not None  # values must be copied word for word
        self.data, self.source, self.wanted, self.leaves = data, source, wanted, found
        self.covered: set[int] = set()
        self.doubts: list[tuple[str, str, str]] = []
        self.counts = dict.fromkeys(FEATURES, 0.0)
        keys = {path[-1] for path, _ in found if path}
        keys |= {name for shape in wanted.shapes for name, _ in shape.parts() if name}
        for names in wanted.variants.values():
            keys |= names
        self.stems = {key: _stems(key) for key in sorted(keys)}

    def features(self) -> dict[str, float]:
        """Count what the values of the reply show, and return the counts, each at most MOST.

        Fills `doubts`.
        """
        looked_up = known = 0
        spans: list[tuple[str, list[int], int]] = []
        for path, leaf in self.leaves:
            key = path[-1] if path else ""
            state, places, size = self._look_up(path, leaf)
            looked_up += state != "free"
            known += state == "found"
            if state in ("absent", "partial"):
                self.counts[state] += 1
                self.doubts.append((key, str(leaf)[:80], "missing"))
            if places:
                spans.append((key, places, size))
                for at in places:
                    self.covered.update(range(at, at + size))
            is_text = isinstance(leaf, str) and leaf and not _DURATION.fullmatch(leaf)
            if is_text and _is_of_other_kind(key, leaf, self.leaves):
                self.counts["clash"] += 1
                self.doubts.append((key, leaf[:80], "contradicted"))
        for key, places, size in spans:
            self._weigh_places(key, places, size)
        self.counts["found"] = known / looked_up if looked_up else 1.0
        texts = [
            (path[-1:], leaf.casefold()) for path, leaf in self.leaves if isinstance(leaf, str)
        ]
        several = {text for _, text in texts if len(text) > 2}
        self.counts["twice"] = (
            len(dict.fromkeys(texts))
            - len({*several})
            - sum(len(text) <= 2 for _, text in dict.fromkeys(texts))
        )
        self._count_unused()
        self._count_rivals()
        return {name: min(float(count), MOST) for name, count in self.counts.items()}

    def _look_up(self, path: tuple[str, ...], leaf: Any) -> tuple[str, list[int], int]:
        """Return (state, places, length) of a value: `found`, `partial`, `absent` or `free`.

        `free` values need not be in the text. The places are indexes of words, and the length is in
        words.
        """
        key = path[-1] if path else ""
        plain = plain_key(key)
        shape = self.wanted.shape_at(path)
        is_free = shape is not None and bool(shape.choices)
        is_free |= isinstance(leaf, str) and is_absence(leaf)
        if leaf is None or leaf == "" or isinstance(leaf, bool) or is_free:
            return "free", [], 0
        if isinstance(leaf, str) and _DURATION.fullmatch(leaf):
            return "free", [], 0
        words = plain_words(str(leaf)).split()[:60]
        places = self.data.find(words)
        if places:
            return "found", places, len(words)
        if isinstance(leaf, int | float):
            if abs(leaf) <= MAX_COUNT and leaf not in self.source.numbers:
                return "free", [], 0  # a count
            if fault_of_value(path, leaf, self.source, self.wanted, is_verbatim=False):
                return "absent", [], 0
            is_found = Fraction(str(leaf)) in self.source.numbers if abs(leaf) < 1e15 else False
            return ("found" if is_found else "free"), [], 0
        if not isinstance(leaf, str):
            return "free", [], 0
        joined = "".join(words)
        if len(joined) > 3 and joined in self.source.joined_words:
            return "found", [], 0
        if is_offered(leaf, self.ask):
            return "free", [], 0
        if FREE.search(plain) and (not self.is_copied or leaf.casefold() in self.ask):
            return "free", [], 0  # in the model's own words, or a choice of the prompt
        missing = [word for word in words if not self.data.has(word)]
        if not missing or _is_day(plain, leaf, self.source):
            return "found", [], 0
        if fault_of_value(path, leaf, self.source, self.wanted, is_verbatim=True):
            return ("absent" if 2 * len(missing) > len(words) else "partial"), [], 0
        if dates_in(leaf) or times_in(leaf):
            return "found", [], 0
        if may_be_computed(plain, self.source) or FREE.search(plain):
            return "free", [], 0
        return "partial", [], 0

    def _weigh_places(self, key: str, places: list[int], size: int) -> None:
        """Count whether a found value is cut short, declined, or near the word of another key.

        Changes `counts` and `doubts`. `places` are its indexes and `size` is its length in words.
        """
        data = self.data
        if data.declined and all(
            any(start <= data.starts[at] < end for start, end in data.declined) for at in places
        ):
            self.counts["declined"] += 1
            self.doubts.append(
                (
                    key,
                    " ".join(data.raw[at] for at in range(places[0], places[0] + size))[:80],
                    "contradicted",
                )
            )
        if all(self._goes_on(at, size) for at in places):
            self.counts["cut"] += 1
        own = other = NEAR + 1
        for at in places[:MOST]:
            for name, stems in self.stems.items():
                distance = self._distance(stems, at, size)
                if name == key:
                    own = min(own, distance)
                elif not stems <= self.stems.get(key, frozenset()):
                    other = min(other, distance)
        self.counts["own"] += own <= NEAR
        self.counts["alien"] += other < own

    def _goes_on(self, at: int, size: int) -> bool:
        """Return whether another capitalised word adjoins the name of `size` words at an index."""
        raw = self.data.raw
        for beside, edge in ((at - 1, at), (at + size, at + size - 1)):
            if not 0 <= beside < len(raw) or beside in self.covered:
                continue
            first, last = sorted((beside, edge))
            between = self.data.text[
                self.data.starts[first] + len(raw[first]) : self.data.starts[last]
            ]
            if between not in (" ", "-", " & "):
                continue
            word = self.data.words[beside]
            if word in _COMMON:
                continue
            if raw[beside][0].isupper() and raw[edge][0].isupper():
                return True
        return False

    def _distance(self, stems: frozenset[str], at: int, size: int) -> int:
        """Return how many words separate a value from the nearest word for a key.

        NEAR + 1 if too many.
        """
        words = self.data.words
        for distance in range(1, NEAR + 1):
            for place in (at - distance, at + size - 1 + distance):
                if (
                    0 <= place < len(words)
                    and place not in self.covered
                    and words[place][:5] in stems
                ):
                    return distance
        return NEAR + 1

    def _count_unused(self) -> None:
        """Set the share of a short text's content words that no value has."""
        words = self.data.words
        if not words or len(words) > SHORT:
            return
        named = frozenset().union(*self.stems.values()) if self.stems else frozenset()
        content = [
            at for at, word in enumerate(words) if word not in _COMMON and word[:5] not in named
        ]
        unused = [at for at in content if at not in self.covered]
        self.counts["unused_words"] = len(unused) / len(content) if content else 0.0

    def _count_rivals(self) -> None:
        """Set how many dates and times of the reply precede an unused one of the user."""
        text = self.data.text
        own = "\n".join(str(leaf)[:100] for _, leaf in self.leaves)
        dates = [({(d.month, d.day) for d in each.values}, each.start) for each in dates_in(text)]
        used = [{(d.month, d.day) for d in each.values} for each in dates_in(own)]
        times = [({each.minutes % HALF_DAY}, each.start) for each in times_in(text)]
        clock = [{each.minutes % HALF_DAY} for each in times_in(own)]
        self.counts["rival"] = self._rivals(dates, used) + self._rivals(times, clock)

    def _rivals(self, stated: list[tuple[set[Any], int]], used: list[set[Any]]) -> int:
        """Return after how many of the used values the user states an unused one.

        `stated` are (readings, position) in the text.
        """
        known = set().union(*used)
        free = [start for values, start in stated if not values & known]
        free = [at for at in free if any(begin <= at < end for begin, end in self.data.user_ranges)]
        count = 0
        for wanted in used:
            last = max((start for values, start in stated if values & wanted), default=None)
            count += last is not None and any(start > last for start in free)
        return count


def is_offered(leaf: str, ask: str) -> bool:
    """Return whether a prompt in lower case offers a value, in quotes or in a list of choices."""
    text = leaf.strip().casefold()
    if not text or len(text) > 40 or len(text.split()) > 3 or text not in ask:
        return False
    return bool(
        re.search(
            rf"[\"'`“|/(,:]\s*{re.escape(text)}\s*[\"'`”|/),.;]"
            rf"|(?:^|[\n,;(])\s*[-*•]?\s*{re.escape(text)}\s*[=(:]",
            ask,
        )
    )


def _is_day(plain: str, leaf: str, source: SourceText) -> bool:
    """Return whether a value under a key for dates is a day such as `the 6th` in the text."""
    numbers = re.findall(r"\d{1,2}", leaf)
    return (
        len(leaf) < 30
        and bool(numbers)
        and DATE_KEY.search(plain) is not None
        and all(Fraction(int(number)) in source.numbers for number in numbers)
        and not dates_in(leaf)
    )


def _stems(key: str) -> frozenset[str]:
    """Return the first five letters of each word in a key in camel or snake case, in lower case.

    Words of at most two letters, and those that many keys have, are left out.
    """
    spaced = re.sub(r"(?<=[a-z])(?=[A-Z])", " ", key).replace("_", " ")
    return frozenset(
        word[:5] for word in plain_words(spaced).split() if word not in _GENERIC and len(word) > 2
    )


def _is_of_other_kind(key: str, leaf: str, found: list[tuple[tuple[str, ...], Any]]) -> bool:
    """Return whether a value has no number although its key counts, or is a misplaced date.

    A date is misplaced if its key is not for dates and the reply has one that is.
    """
    plain = plain_key(key)
    has_digits = bool(re.search(r"\d", leaf)) or bool(numbers_in(leaf))
    if _COUNTS.search(key.casefold()) and not has_digits and len(leaf.split()) > 1:
        return True
    is_time = bool(times_in(leaf)) and len(leaf) < 25
    is_date = bool(dates_in(leaf)) and len(leaf) < 30
    if (is_time or is_date) and not (DATE_KEY.search(plain) or TIME_KEY.search(plain)):
        return any(
            DATE_KEY.search(plain_key(path[-1])) or TIME_KEY.search(plain_key(path[-1]))
            for path, _ in found
            if path
        )
    return False
