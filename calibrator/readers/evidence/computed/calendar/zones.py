"""Times of day in two cities, such as "9:30 in Lisbon" in Athens."""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Mapping
from datetime import datetime, timedelta
from functools import cache
from typing import Final
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError, available_timezones

# Cities that people name and the database does not, with a zone of the database.
_MORE: Final = {
    "san francisco": "America/Los_Angeles",
    "seattle": "America/Los_Angeles",
    "las vegas": "America/Los_Angeles",
    "san diego": "America/Los_Angeles",
    "boston": "America/New_York",
    "washington": "America/New_York",
    "miami": "America/New_York",
    "atlanta": "America/New_York",
    "philadelphia": "America/New_York",
    "houston": "America/Chicago",
    "dallas": "America/Chicago",
    "austin": "America/Chicago",
    "montreal": "America/Toronto",
    "rio de janeiro": "America/Sao_Paulo",
    "barcelona": "Europe/Madrid",
    "milan": "Europe/Rome",
    "munich": "Europe/Berlin",
    "hamburg": "Europe/Berlin",
    "frankfurt": "Europe/Berlin",
    "geneva": "Europe/Zurich",
    "manchester": "Europe/London",
    "edinburgh": "Europe/London",
    "krakow": "Europe/Warsaw",
    "kyiv": "Europe/Kiev",
    "beijing": "Asia/Shanghai",
    "shenzhen": "Asia/Shanghai",
    "osaka": "Asia/Tokyo",
    "kyoto": "Asia/Tokyo",
    "mumbai": "Asia/Kolkata",
    "delhi": "Asia/Kolkata",
    "new delhi": "Asia/Kolkata",
    "bangalore": "Asia/Kolkata",
    "bengaluru": "Asia/Kolkata",
    "chennai": "Asia/Kolkata",
    "hanoi": "Asia/Ho_Chi_Minh",
    "abu dhabi": "Asia/Dubai",
    "tel aviv": "Asia/Jerusalem",
    "cape town": "Africa/Johannesburg",
    "canberra": "Australia/Sydney",
    "wellington": "Pacific/Auckland",
}
_AREAS: Final = ("Africa", "America", "Asia", "Atlantic", "Australia", "Europe", "Pacific")
_YEAR: Final = 2026  # a year whose offsets are compared
_CITY: Final = re.compile(r"\b[A-Z][\w'’.-]+(?: (?:de |of )?[A-Z][\w'’.-]+){0,2}")


@cache
def city_zones() -> Mapping[str, str]:
    """Return the time zones by city in lower case, such as `Europe/Lisbon` for `lisbon`.

    Cities of several zones are left out. Empty where the machine has no database of time zones.
    Computed once.
    """
    found: dict[str, set[str]] = defaultdict(set)
    for name in available_timezones():
        if name.startswith(_AREAS) and "/" in name:
            found[name.rsplit("/", 1)[1].replace("_", " ").casefold()].add(name)
    cities = {city: min(zones) for city, zones in found.items() if len(zones) == 1}
    known = set().union(*found.values()) if found else set()
    return cities | {city: zone for city, zone in _MORE.items() if zone in known}


def cities_in(text: str) -> list[tuple[str, int]]:
    """Return (city in lower case, position) of each known city, in order and once.

    Only capitalised names in the first 1,000 characters are looked at.
    """
    zones = city_zones()
    found: dict[str, int] = {}
    for match in _CITY.finditer(text[:1_000]):
        names = match[0].split()
        for size in range(len(names), 0, -1):
            city = " ".join(names[:size]).rstrip(".,'’-").casefold()
            if city in zones:
                found.setdefault(city, match.start())
                break
    return list(found.items())


@cache
def minutes_ahead(city: str, other: str) -> tuple[int, ...]:
    """Return by how many minutes `city` is ahead of `other`; the most frequent of the year first.

    Several if the cities change their clocks on different days; empty if a city or its zone is
    unknown. Both names are in lower case.
    """
    try:
        zones = [ZoneInfo(city_zones()[name]) for name in (city, other)]
    except (KeyError, ZoneInfoNotFoundError):
        return ()
    start = datetime(_YEAR, 1, 15, 12)
    days = [start + timedelta(days=7 * week) for week in range(52)]
    ahead = Counter(
        int((_offset(zones[0], day) - _offset(zones[1], day)).total_seconds()) // 60 for day in days
    )
    return tuple(minutes for minutes, _ in ahead.most_common())


_TARGET: Final = re.compile(
    r"\b(?:what(?:'s| is)? (?:the )?(?:local )?time|what time|how late|wie spät|wie ?viel uhr"
    r"|qué hora|quelle heure)\b[^.?!]{0,30}?\b(?:in|en|à) (?=[A-Z])",
    re.IGNORECASE,
)
_ASKS: Final = re.compile(
    r"\b(?:what(?:'s| is)? (?:the )?(?:local )?time|what time|when (?:is|would|will) (?:that|it"
    r"|this)|wie spät|wie ?viel uhr"
    r"|qué hora|quelle heure)\b",
    re.IGNORECASE,
)
_OWN: Final = re.compile(
    r"\b(?:I'm|I am|I live|here|we're|we are|calling from|ich bin|estoy|je suis)\b[^.?!,]{0,20}?\b"
    r"(?:in|from|en|à) (?=[A-Z])"
)
_OWN_TIME: Final = re.compile(
    r"\b(?:my|our) (?:local )?time\b|\bhere\b|\b(?:meiner|unserer) zeit\b|\bhora (?:mía"
    r"|local mía)\b",
    re.IGNORECASE,
)
_THEIR_TIME: Final = re.compile(
    r"\b(?:his|her|their|your) (?:local )?time\b|\b(?:seiner|ihrer) zeit\b|\bsu hora\b",
    re.IGNORECASE,
)
_FOR_ME: Final = re.compile(
    r"\b(?:for|to) (?:me|us)\b|\b(?:my|our) time\s*\?|\bhere\s*\?|\b(?:für|bei) (?:mich|mir|uns)\b"
    r"|\bpara (?:mí|nosotros)\b|\bpour (?:moi|nous)\b",
    re.IGNORECASE,
)


def moves_between(question: str, time_at: int) -> tuple[int, ...]:
    """Return by how many minutes the wanted time is ahead of the one that a question states.

    An example is `It is 9:30 in Lisbon. What time is it in Athens?`: (120,). `time_at` is the
    position of the stated time. There are several moves if the two cities change their clocks on
    different days. Empty unless the question asks for a time, has two known cities and shows whose
    time is stated.
    """
    if not _ASKS.search(question):  # before the zones are read, which takes a quarter of a second
        return ()
    cities = cities_in(question)
    if len(cities) != 2:
        return ()
    places = [at for _, at in cities]
    target = _TARGET.search(question)
    own = _OWN.search(question)
    if target is not None and target.end() in places:
        wanted = places.index(target.end())
    elif own is not None and own.end() in places:
        own_at = places.index(own.end())
        around = question[max(0, time_at - 30) : time_at + 30]
        is_mine = bool(_OWN_TIME.search(around))
        is_named = not is_mine and cities[1 - own_at][0] in around.casefold()
        is_theirs = is_named or bool(_THEIR_TIME.search(around))
        if is_mine == is_theirs and not _FOR_ME.search(question):
            return ()
        wanted = own_at if is_theirs or (not is_mine and _FOR_ME.search(question)) else 1 - own_at
    else:
        near = [at > time_at and question[time_at:at].count(" ") <= 5 for at in places]
        if near.count(True) != 1 or " to " not in question:
            return ()
        wanted = 1 - near.index(True)
    return minutes_ahead(cities[wanted][0], cities[1 - wanted][0])


def _offset(zone: ZoneInfo, day: datetime) -> timedelta:
    """Return a zone's offset from UTC at a time of day; zero if the zone does not define it."""
    return zone.utcoffset(day) or timedelta()
