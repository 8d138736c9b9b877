"""Templates: `<a|b>` is a choice, `$x` or `${x}` a slot, `$X` the slot with a capital."""

from __future__ import annotations

import random
import re
from collections.abc import Mapping
from functools import cache
from importlib.resources import files
from typing import Any

import yaml

_CHOICE = re.compile(r"<([^<>]*)>")
_SLOT = re.compile(r"\$(?:\{(\w+)\}|([A-Za-z][a-z0-9_]*))")
_VOWELS = "aeiou"
_DOUBLED = {
    "put",
    "cut",
    "swap",
    "split",
    "let",
    "run",
    "get",
    "sit",
    "chat",
    "drop",
    "rub",
    "plan",
    "dig",
    "cancel",
}
_STAYS = {"see", "dye"}


@cache
def data(name: str) -> Any:
    """Load the YAML file `words/NAME.yaml` and return its content; it is read once."""
    return yaml.safe_load((files(__package__) / f"{name}.yaml").read_text(encoding="utf-8"))


def choose_words(template: str, rng: random.Random) -> str:
    """Return the template with every `<a|b>` replaced by one of its texts, inner ones first."""
    while "<" in template:
        template, replaced = _CHOICE.subn(lambda found: rng.choice(found[1].split("|")), template)
        if not replaced:
            break
    return template


def slots_of(template: str) -> set[str]:
    """Return the names of the slots in a template, in small letters."""
    return {(braced or plain).lower() for braced, plain in _SLOT.findall(template)}


def fill(template: str, texts: Mapping[str, str]) -> str:
    """Replace the slots of a template (`$x`, `${x}`) by `texts`, and return the tidied text.

    `$X` gives the text with a capital. Raises KeyError for a slot without a text.
    """

    def text(found: re.Match[str]) -> str:
        """Return the text of a matched slot, with a capital if the slot's name has one."""
        name = found[1] or found[2]
        value = texts[name.lower()]
        return capital(value) if name[0].isupper() else value

    return tidy(_SLOT.sub(text, template))


def tidy(text: str) -> str:
    """Return the text with single spaces, and with a capital at its start and after `!` and `?`.

    Blanks before commas and doubled stops after `a.m.` or `p.m.` are removed.
    """
    text = " ".join(text.split()).replace(" ,", ",")
    text = re.sub(r"(?<=[ap]\.m)\.\.+", ".", text)
    text = re.sub(r"(?<=[!?] )[a-z]", lambda found: found[0].upper(), text)
    return capital(text)


def capital(text: str) -> str:
    """Return the text with its first letter as a capital."""
    return text[:1].upper() + text[1:]


def gerund(act: str) -> str:
    """Return an act in the -ing form, also after `and`: `bring a dog` gives `bringing a dog`."""
    verb, _, rest = act.partition(" ")
    parts = re.sub(r" and ([a-z-]+)(?= )", lambda found: " and " + _ing(found[1]), " " + rest)
    return (_ing(verb) + parts).strip()


def _ing(verb: str) -> str:
    """Return the present participle of a verb: `bring` gives `bringing`, `cut` `cutting`."""
    if "-" in verb:
        return "-".join([*verb.split("-")[:-1], _ing(verb.split("-")[-1])])
    if verb.endswith("c"):
        return verb + "king"
    if verb.endswith("ie"):
        return verb[:-2] + "ying"
    if verb in _STAYS or verb.endswith("ee"):
        return verb + "ing"
    if verb.endswith("e"):
        return verb[:-1] + "ing"
    if verb in _DOUBLED:
        return verb + verb[-1] + "ing"
    return verb + "ing"


def plural(noun: str) -> str:
    """Return the plural of a regular noun: `fee` gives `fees`, `policy` gives `policies`."""
    if noun.endswith("y") and noun[-2] not in _VOWELS:
        return noun[:-1] + "ies"
    return noun + ("es" if noun.endswith(("s", "x", "ch", "sh")) else "s")
