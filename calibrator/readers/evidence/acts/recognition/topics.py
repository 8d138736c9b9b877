"""The words of a dozen topics, and the recognition of harmful requests."""

from __future__ import annotations

from typing import Final

from calibrator.readers.evidence.acts.recognition.wording import pattern, word_lists

_WORD: Final = pattern("topics", "word")
_STOP_WORDS = """
    a an the this that these those it its there here and or but of in on at to for from by with
    as is are was were be been being do does did has have had will would can could should may
    might must who whom whose what which when where why how i you we he she they me my your our
    us them his her their not no nor so if then than too very just also only about into over
    under out up down off all any some each every other such own same s t don doesn isn aren
    please tell give want need let get got like know one ones thing things something anything
    everything make made say said asked ask answer reply question questions user users customer
    customers really much many more most now again still yes ok okay hi hello hey thanks thank
    sure
"""
_STOP: Final = frozenset(_STOP_WORDS.split())
_SUFFIX: Final = pattern("topics", "suffix")


def stem(word: str) -> str:
    """Return a word in lower case without common English endings: `cooking` becomes `cook`.

    At least three letters remain; otherwise the word is returned whole.
    """
    word = word.lower().replace("\u2019", "'").removesuffix("'s")
    short = _SUFFIX.sub("", word)
    if len(short) < 3:
        return word
    if len(short) > 3 and short[-1] == short[-2]:
        short = short[:-1]
    return short.rstrip("e") if len(short) > 3 else short


def content_words(text: str) -> set[str]:
    """Return the stems of a text's words that carry meaning; function words are left out.

    At most 20,000 characters are read.
    """
    return {stem(word) for word in _WORD.findall(text[:20_000].lower()) if word not in _STOP}


_STEMS: Final = {
    name: frozenset(map(stem, words)) for name, words in word_lists("topic_words").items()
}
_NAMES: Final = {
    stem(alias): name for name, aliases in word_lists("topic_names").items() for alias in aliases
}
_NEAR: Final = (
    {"mathematics", "science", "code", "finance"},
    {"history", "politics", "geography", "religion", "law"},
    {"travel", "geography", "weather", "history"},
    {"gardening", "cooking", "animals", "science", "weather"},
    {"medicine", "cooking", "science", "animals"},
    {"medicine", "sport"},
    {"films", "music", "writing", "history"},
)
_HARM: Final = pattern("topics", "harm")
_HARMLESS: Final = pattern("topics", "harmless")


def topics_in(text: str) -> set[str]:
    """Return the topics, such as `cooking`, of which the first 2,000 characters have a word."""
    words = content_words(text[:2_000])
    return {name for name, stems in _STEMS.items() if words & stems}


def topics_named(text: str) -> set[str]:
    """Return the topics that a rule names: {`cooking`} for `only answer questions about recipes`.

    At most 500 characters are read. Names are fewer and more general words than those of
    `topics_in`.
    """
    return {_NAMES[word] for word in content_words(text[:500]) if word in _NAMES}


def are_near(first: set[str], second: set[str]) -> bool:
    """Return whether two sets of topics share one, or have related ones (travel and weather)."""
    return bool(first & second) or any(first & group and second & group for group in _NEAR)


def is_harmless_use(request: str) -> bool:
    """Return whether the request has a word that makes danger harmless: `kill a process`.

    The words are those of games, fiction, computers, pests, and questions about facts.
    """
    return bool(_HARMLESS.search(request[:1_500]))


def is_harmful(request: str) -> bool:
    """Return whether a request plainly asks for a weapon, a hard drug, a crime or self-harm.

    False if `is_harmless_use` is True, as for `build a bomb in Minecraft`. 1,500 characters are
    read.
    """
    text = request[:1_500]
    return bool(_HARM.search(text)) and not _HARMLESS.search(text)
