"""Kinds of symbolic tasks; each makes a task with its working and its right answer."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise

_OPEN = {"(": ")", "[": "]", "{": "}", "<": ">"}
_UNION, _COMMON = "\u222a", "\u2229"
_SYLLABLES = (
    *("ba", "ce", "di", "fo", "gu", "la", "me", "ni", "po", "ru", "sa", "te", "vi", "zo"),
    *("kan", "mer", "tol", "pin", "dus", "rok"),
)
_PEOPLE = (
    *("Ada", "Ben", "Cleo", "Dan", "Eva", "Finn", "Gus", "Hana"),
    *("Ivo", "Jana", "Kurt", "Lea", "Mia", "Nils", "Olga", "Pia"),
)
_THINGS = (
    *("red cup", "blue cup", "green ball", "old hat"),
    *("silver key", "long scarf", "small drum", "map"),
)
_WAYS = {"N": (0, 1), "S": (0, -1), "E": (1, 0), "W": (-1, 0)}
_ROMAN = (
    *((100, "C"), (90, "XC"), (50, "L"), (40, "XL")),
    *((10, "X"), (9, "IX"), (5, "V"), (4, "IV"), (1, "I")),
)
_LETTERS = "abcdefghijklmnopqrstuvwxyz"


@dataclass(frozen=True, slots=True)
class SymbolicTask:
    """An instruction, its input, the steps of the working, and the right answer."""

    does: tuple[str, ...]  # wordings of the instruction
    material: str
    steps: tuple[str, ...]
    answer: str


def _words(rng: random.Random, least: int, most: int) -> list[str]:
    """Return `least` to `most` invented words of one to three syllables, such as `lamer`."""
    return [
        "".join(rng.choices(_SYLLABLES, k=rng.randint(1, 3)))
        for _ in range(rng.randint(least, most))
    ]


def _brackets(rng: random.Random) -> SymbolicTask:
    """Make a sequence such as `( [ ]`, and ask for the missing closing brackets.

    The answer is such as `)`, or `nothing`; a step has the brackets still open after each sign.
    """
    stack: list[str] = []
    signs, steps = [], []
    for _ in range(rng.randint(5, 45)):
        if stack and rng.random() < 0.48:
            signs.append(_OPEN[stack.pop()])
        else:
            stack.append(rng.choice("([{<"))
            signs.append(stack[-1])
        steps.append(f"{signs[-1]} -> {' '.join(stack) or 'nothing open'}")
    missing = " ".join(_OPEN[each] for each in reversed(stack)) or "nothing"
    does = "Close all brackets", "Which brackets are missing at the end", "Complete the sequence"
    return SymbolicTask(does, " ".join(signs), tuple(steps), missing)


def _stack(rng: random.Random) -> SymbolicTask:
    """Make a series such as `push a, push b, pop`, and ask for the stack in the end, `[a]`.

    A step has the stack after each operation.
    """
    stack: list[str] = []
    operations, steps = [], []
    for _ in range(rng.randint(4, 16)):
        if stack and rng.random() < 0.4:
            operations.append("pop")
            stack.pop()
        else:
            stack.append(rng.choice(_LETTERS))
            operations.append(f"push {stack[-1]}")
        steps.append(f"{operations[-1]}: [{', '.join(stack)}]")
    does = "What is on the stack in the end", "Run these operations", "Stack machine"
    return SymbolicTask(does, ", ".join(operations), tuple(steps), f"[{', '.join(stack)}]")


def _sorting_task(rng: random.Random) -> SymbolicTask:
    """Make invented words to sort alphabetically; a step has those with one first letter."""
    words = list(dict.fromkeys(_words(rng, 4, 14)))
    ordered = sorted(words)
    by_first: dict[str, list[str]] = {}
    for each in words:
        by_first.setdefault(each[0], []).append(each)
    steps = [f"{first}: {', '.join(by_first[first])}" for first in sorted(by_first)]
    does = "Sort the words", "Put these in alphabetical order", "Alphabetical list"
    return SymbolicTask(does, " ".join(words), tuple(steps), " ".join(ordered))


def _numbers(rng: random.Random) -> SymbolicTask:
    """Make four to nine numbers to sort in ascending order; a step takes the least one out."""
    numbers = [rng.randint(1, 99) for _ in range(rng.randint(4, 9))]
    remaining, steps = list(numbers), []
    while len(remaining) > 1:
        remaining.remove(least := min(remaining))
        steps.append(f"smallest is {least}, left: {' '.join(map(str, remaining))}")
    does = "Sort ascending", "Order these numbers", "From small to large"
    ordered = " ".join(map(str, sorted(numbers)))
    return SymbolicTask(does, " ".join(map(str, numbers)), tuple(steps), ordered)


def _reversal_task(rng: random.Random) -> SymbolicTask:
    """Make a word to spell backwards; the steps move letters from its front to the answer."""
    word = "".join(_words(rng, 2, 3))
    steps = [f"{word[at:]} | {word[:at][::-1]}" for at in range(1, len(word), 2)]
    does = "Spell it backwards", "Reverse the letters", "Mirror this word"
    return SymbolicTask(does, word, tuple(steps), word[::-1])


def _last_letters(rng: random.Random) -> SymbolicTask:
    """Make a list of words, and ask for their last letters joined to one word."""
    words = _words(rng, 3, 7)
    steps = [f"{word}: {word[-1]}" for word in words]
    does = "Join the last letters of the words", "Last letter of each, together", "Last letters"
    return SymbolicTask(does, ", ".join(words), tuple(steps), "".join(word[-1] for word in words))


def _truth(rng: random.Random) -> SymbolicTask:
    """Make an expression such as `!(T & F)`; the answer is `true` or `false`.

    Its steps evaluate it from the inside.
    """
    text, value = (("T", True), ("F", False))[rng.randrange(2)]
    steps = []
    for _ in range(rng.randint(3, 9)):
        sign, other = rng.choice("&|^"), rng.random() < 0.5
        before = value
        value = {"&": value and other, "|": value or other, "^": value != other}[sign]
        text = f"({text} {sign} {'T' if other else 'F'})"
        steps.append(f"{str(before)[0]} {sign} {str(other)[0]} = {str(value)[0]}")
        if rng.random() < 0.3:
            text, value = f"!{text}", not value
            steps.append(f"!{str(not value)[0]} = {str(value)[0]}")
    does = "Evaluate", "True or false", "Value of the expression (& and, | or, ^ either, ! not)"
    return SymbolicTask(does, text, tuple(steps), "true" if value else "false")


def _swaps(rng: random.Random) -> SymbolicTask:
    """Make a story of people who swap things, and ask what one of them holds in the end.

    A step has what each holds after a swap.
    """
    people = rng.sample(_PEOPLE, rng.randint(3, 5))
    things = dict(zip(people, rng.sample(_THINGS, len(people)), strict=True))
    story = [", ".join(f"{who} has the {what}" for who, what in things.items())]
    steps = []
    for _ in range(rng.randint(2, 6)):
        one, other = rng.sample(people, 2)
        things[one], things[other] = things[other], things[one]
        story.append(f"{one} and {other} swap")
        steps.append(f"{one} <-> {other}: " + ", ".join(f"{a}: {b}" for a, b in things.items()))
    who = rng.choice(people)
    does = f"What does {who} hold in the end", f"At the end, {who} has ..."
    return SymbolicTask(does, ". ".join(story), tuple(steps), things[who])


def _walk(rng: random.Random) -> SymbolicTask:
    """Make moves such as `N E E` from (0, 0), and ask where they end, such as `(2, 1)`.

    A step has the place after each move.
    """
    moves = rng.choices("NSEW", k=rng.randint(4, 14))
    x = y = 0
    steps = []
    for move in moves:
        x, y = x + _WAYS[move][0], y + _WAYS[move][1]
        steps.append(f"{move}: ({x}, {y})")
    does = "Where does the walk end", "Start at (0, 0) and follow the moves", "Robot on a grid"
    return SymbolicTask(does, " ".join(moves), tuple(steps), f"({x}, {y})")


def _rewriting_task(rng: random.Random) -> SymbolicTask:
    """Make rules such as `A -> BC`, and ask for a string after two to four rounds of them.

    A step has the string after each round.
    """
    rules = {each: "".join(rng.choices("ABC", k=rng.randint(1, 2))) for each in "ABC"}
    text = "".join(rng.choices("ABC", k=rng.randint(1, 3)))
    rules_text = ", ".join(f"{left} -> {right}" for left, right in rules.items())
    material, rounds, steps = f"{text}, rules {rules_text}", rng.randint(2, 4), []
    for _ in range(rounds):
        text = "".join(rules[each] for each in text)
        steps.append(text)
    does = f"Apply the rules {rounds} times", f"String after {rounds} rounds"
    return SymbolicTask(does, material, tuple(steps), text)


def _binary_sum(rng: random.Random) -> SymbolicTask:
    """Make a sum of two binary numbers; the answer is binary, and a step adds one place."""
    first, second, carry, steps = rng.randrange(4, 256), rng.randrange(4, 256), 0, []
    for at in range(max(first, second).bit_length()):
        digit_sum = (first >> at & 1) + (second >> at & 1) + carry
        steps.append(f"{first >> at & 1} + {second >> at & 1} + {carry}: write {digit_sum & 1}")
        carry = digit_sum >> 1
    wordings = "Add in base two", "Binary sum", "Compute, digits are binary"
    return SymbolicTask(wordings, f"{first:b} + {second:b}", tuple(steps), f"{first + second:b}")


def _roman(rng: random.Random) -> SymbolicTask:
    """Make a number from 4 to 399 to write in Roman numerals; a step takes one sign off."""
    number, text, steps = rng.randint(4, 399), "", []
    remaining = number
    for value, sign in _ROMAN:
        while remaining >= value:
            text, remaining = text + sign, remaining - value
            steps.append(f"{sign} = {value}, left {remaining}")
    does = "In Roman numerals", "Write as a Roman numeral"
    return SymbolicTask(does, str(number), tuple(steps), text)


def _counting_task(rng: random.Random) -> SymbolicTask:
    """Make a row of signs such as `* # *`, and ask how often one of them occurs."""
    signs = rng.choices("*#+@%", k=rng.randint(8, 30))
    sign, count, steps = rng.choice(signs), 0, []
    for at, each in enumerate(signs, 1):
        count += each == sign
        if each == sign:
            steps.append(f"place {at}: {sign}, that makes {count}")
    does = f"How many {sign} are there", f"Count {sign}"
    return SymbolicTask(does, " ".join(signs), tuple(steps), str(count))


def _pattern(rng: random.Random) -> SymbolicTask:
    """Make a repeating pattern such as `X O X O X`, and ask for the next sign."""
    part = rng.choices("XO-^v", k=rng.randint(2, 4))
    count = rng.randint(len(part) * 2, len(part) * 4)
    signs = [part[at % len(part)] for at in range(count)]
    steps = (
        f"the part {' '.join(part)} repeats",
        f"{count} shown, {count % len(part)} of a new one",
    )
    does = "What comes next", "Continue the pattern", "Next symbol"
    return SymbolicTask(does, " ".join(signs), steps, part[count % len(part)])


def _sets(rng: random.Random) -> SymbolicTask:
    """Make an expression of unions, intersections and differences, and ask for its elements.

    The answer is a set such as `{a, b}` in alphabetical order; a step has the set after each
    operation.
    """
    sets = [sorted(rng.sample(_LETTERS[:9], rng.randint(2, 6))) for _ in range(rng.randint(2, 4))]
    found, steps = set(sets[0]), []
    expression = "{" + ", ".join(sets[0]) + "}"
    for each in sets[1:]:
        sign = rng.choice((_UNION, _COMMON, "\\"))
        other = set(each)
        found = {_UNION: found | other, _COMMON: found & other, "\\": found - other}[sign]
        written = "{" + ", ".join(each) + "}"
        expression = f"({expression} {sign} {written})"
        steps.append(f"{sign} {written}: {{{', '.join(sorted(found))}}}")
    does = "Which set is it", "Simplify", "Elements of"
    return SymbolicTask(does, expression, tuple(steps), "{" + ", ".join(sorted(found)) + "}")


def _cipher(rng: random.Random) -> SymbolicTask:
    """Make a word and a key from 1 to 9, and ask for each letter shifted by the key."""
    word, by = "".join(_words(rng, 1, 2)), rng.randint(1, 9)
    shifted = [_LETTERS[(_LETTERS.index(each) + by) % 26] for each in word]
    steps = [f"{a} + {by} -> {b}" for a, b in zip(word, shifted, strict=True)]
    does = f"Shift each letter by {by}", f"Caesar cipher, key {by}"
    return SymbolicTask(does, word, tuple(steps), "".join(shifted))


def _nesting_task(rng: random.Random) -> SymbolicTask:
    """Make an expression such as `((3 + 4) * 2)`; the answer is its value.

    Its steps evaluate it from the inside.
    """
    value = rng.randint(-9, 9)
    text, steps = str(value), []
    for _ in range(rng.randint(2, 6)):
        sign, other = rng.choice("+-*"), rng.randint(-9, 9)
        before = value
        value = {"+": value + other, "-": value - other, "*": value * other}[sign]
        right = f"({other})" if other < 0 else str(other)
        text = f"({text} {sign} {right})"
        steps.append(f"{before} {sign} {right} = {value}")
    does = "Calculate", "Evaluate from the inside", "Value"
    return SymbolicTask(does, text, tuple(steps), str(value))


def _order(rng: random.Random) -> SymbolicTask:
    """Make facts such as `Ada stands left of Ben`, shuffled, and ask who is at one place."""
    people = rng.sample(_PEOPLE, rng.randint(3, 6))
    facts = [f"{a} stands left of {b}" for a, b in pairwise(people)]
    steps = [" < ".join(people[:at]) for at in range(2, len(people) + 1)]
    at, shuffled = rng.randrange(len(people)), facts[:]
    rng.shuffle(shuffled)
    does = f"Who stands at place {at + 1} from the left", f"Name the person in position {at + 1}"
    return SymbolicTask(does, "; ".join(shuffled), tuple(steps), people[at])


def _edits(rng: random.Random) -> SymbolicTask:
    """Make a series of edits of a string, such as `append k, reverse`, and ask for the result."""
    text = "".join(_words(rng, 1, 1)) + rng.choice(_LETTERS)
    edits, steps = [f"start with {text}"], []
    for _ in range(rng.randint(2, 6)):
        letter = rng.choice(_LETTERS)
        way = rng.randrange(4) if len(text) > 2 else 0
        ways = text + letter, letter + text, text[:-1], text[::-1]
        names = f"append {letter}", f"prepend {letter}", "drop the last", "reverse"
        text = ways[way]
        edits.append(names[way])
        steps.append(f"{names[way]}: {text}")
    does = "What is the string now", "Follow the edits", "Result of the edits"
    return SymbolicTask(does, ", ".join(edits), tuple(steps), text)


KINDS: dict[str, Callable[[random.Random], SymbolicTask]] = {
    "brackets": _brackets,
    "stack": _stack,
    "sorting": _sorting_task,
    "numbers": _numbers,
    "reversing": _reversal_task,
    "last letters": _last_letters,
    "truth": _truth,
    "swaps": _swaps,
    "walk": _walk,
    "rewriting": _rewriting_task,
    "binary": _binary_sum,
    "roman": _roman,
    "counting": _counting_task,
    "pattern": _pattern,
    "sets": _sets,
    "cipher": _cipher,
    "nested": _nesting_task,
    "order": _order,
    "edits": _edits,
}
