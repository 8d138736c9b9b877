"""Tables of facts: countries, chemical elements, calendar, superlatives and counts."""

from __future__ import annotations

import unicodedata
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import Final

MONTHS: Final = tuple(
    [
        "january",
        "february",
        "march",
        "april",
        "may",
        "june",
        "july",
        "august",
        "september",
        "october",
        "november",
        "december",
    ]
)
WEEKDAYS: Final = tuple(
    ["monday", "tuesday", "wednesday", "thursday", "friday", "saturday", "sunday"]
)
PLANETS: Final = tuple(
    ["mercury", "venus", "earth", "mars", "jupiter", "saturn", "uranus", "neptune"]
)
# Cities that are often mistaken for a capital.
_CITIES: Final = (
    "sydney|melbourne|toronto|montreal|vancouver|new york|new york city|los angeles|istanbul"
    "|rio de janeiro|rio|sao paulo|zurich|geneva|auckland|johannesburg|durban|casablanca|marrakesh"
    "|lagos|karachi|lahore|mumbai|kolkata|shanghai|hong kong|ho chi minh city|saigon|dubai"
    "|barcelona|milan|munich|frankfurt|bonn|hamburg|marseille|lyon|glasgow|manchester|rotterdam"
    "|the hague|antwerp|krakow|saint petersburg|st petersburg|almaty|tel aviv|jeddah|mecca"
    "|aleppo|alexandria|dar es salaam|mombasa|douala|yangon|rangoon|osaka|kyoto|busan|calgary"
    "|guayaquil|santa cruz|medellin|salzburg|porto|naples|venice|florence|thessaloniki|izmir"
    "|gothenburg|bergen|philadelphia|chicago|boston|cork|belfast|chiang mai|cebu|kandy|varanasi"
)


@dataclass(frozen=True, slots=True)
class Country:
    """A country; all fields but `name` hold accepted answers in the form of `fold`.

    The first is shown.
    """

    name: str
    capitals: tuple[str, ...]
    currencies: tuple[str, ...]
    languages: tuple[str, ...]
    continents: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class TableFact:
    """The answer to a question: a sentence, accepted answers, and wrong ones of the same kind."""

    text: str
    accepted: tuple[str, ...]
    others: tuple[str, ...] = ()
    is_number: bool = False
    is_capital: bool = False


def fold(text: str) -> str:
    """Return a text in lower case, without accents, with straight apostrophes and single spaces."""
    plain = unicodedata.normalize("NFKD", text.replace("\u2019", "'"))
    letters = "".join(sign for sign in plain if not unicodedata.combining(sign))
    return " ".join(letters.lower().replace("ł", "l").replace("đ", "d").split())


def _lines(name: str) -> list[list[str]]:
    """Return the lines of a data file in cells, without comments and empty lines."""
    text = files("calibrator.readers.evidence.facts").joinpath(name).read_text("utf-8")
    return [line.split("\t") for line in text.splitlines() if line and line[0] != "#"]


def _names(cell: str) -> tuple[str, ...]:
    """Return the folded names in a cell such as `Peru|Republic of Peru`."""
    return tuple(fold(name) for name in cell.split("|"))


@cache
def countries() -> dict[str, Country]:
    """Return the countries by each of their folded names. Loaded once."""
    found = {}
    for names, *cells in _lines("countries.tsv"):
        country = Country(names.split("|")[0], *map(_names, cells))
        for name in _names(names):
            found[name] = country
    return found


@cache
def elements() -> tuple[tuple[str, tuple[str, ...]], ...]:
    """Return (symbol, names) of each chemical element; the index is the atomic number less one."""
    rows = [line[0].split(" ", 1) for line in _lines("elements.txt")]
    return tuple((symbol, _names(names)) for symbol, names in rows)


@cache
def plain_facts() -> dict[str, TableFact]:
    """Return the listed facts by folded question, such as `how many continents`. Loaded once."""
    found = {}
    for keys, accepted, others in _lines("plain_facts.tsv"):
        for key in _names(keys):
            text = f"{key}: {accepted.split('|')[0]}"
            found[key] = TableFact(text, _names(accepted), _names(others))
    for keys, number in _lines("numbers.tsv"):
        for key in _names(keys):
            found[f"how many {key}"] = TableFact(
                f"how many {key}: {number}", (number,), is_number=True
            )
    return found


@cache
def all_of(kind: str) -> tuple[str, ...]:
    """Return all names of `capitals`, `currencies`, `languages` or `continents`, sorted.

    Some large cities count as capitals, and nouns such as `peso` as currencies.
    """
    names = {name for country in countries().values() for name in getattr(country, kind)}
    if kind == "capitals":
        names.update(_CITIES.split("|"))
    if kind == "currencies":
        names |= {name.split()[-1] for name in names}
    return tuple(sorted(names))
