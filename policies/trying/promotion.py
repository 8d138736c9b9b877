"""Promotion of a policy, or of one of its rules, out of shadow, by changing one word of its text.

promoted(text, "helpdesk.yaml", rule="strict")      # shadow: true  -> shadow: false
promoted(text, "helpdesk.yaml")                     # mode: shadow  -> mode: enforce

Comments and layout stay. The result is parsed again, so that nothing else can have changed.
"""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Final

from policies.deciding.policy import Policy, parse_policy, with_certificate
from policies.deciding.rules import Rule
from policies.errors import InvalidDocumentError
from policies.reading.reading import suggestion
from policies.reading.strict_yaml import parse_document
from policies.reading.yaml_builder import Location

_MODE: Final = re.compile(r"""(?P<before>\bmode["']?\s*:\s*["']?)shadow\b""")
_SHADOW: Final = re.compile(r"""(?P<before>\bshadow["']?\s*:\s*)(?:true|True|TRUE)\b""")


def promote(text: str, source: str, rule: str | None = None) -> str:
    """Return the policy's text with `rule` out of shadow, or without `rule` the policy enforced.

    Only one word changes: `shadow: true` becomes false, or `mode: shadow` becomes enforce. Raises
    ValueError with a sentence where it is live already, the rule is unknown or the word cannot be
    changed in place, and InvalidDocumentError where the policy is invalid before or after.
    """
    before = parse_policy(text, source)
    if rule is None:
        if before.is_enforced:
            raise ValueError(f"policy {before.name} is enforced already")
        promoted, location = replace(before, mode="enforce"), ("mode",)
        return _replace_word(text, promoted, location, _MODE, "enforce")
    index = _index(before, rule)
    rules = list(before.rules)
    rules[index] = replace(rules[index], is_shadow=False)
    promoted = replace(before, rules=tuple(rules))
    return _replace_word(text, promoted, ("rules", index, "shadow"), _SHADOW, "false")


def _index(policy: Policy, name: str) -> int:
    """Return the index of the rule of this name, which has to be in shadow.

    Raises ValueError for one that is not, or an unknown name.
    """
    for index, rule in enumerate(policy.rules):
        if rule.name == name:
            if not rule.is_shadow:
                raise ValueError(f"rule {name!r} of policy {policy.name} is not in shadow")
            return index
    hint = suggestion(name, [rule.name for rule in policy.rules])
    raise ValueError(f"policy {policy.name} has no rule {name!r}{hint}")


def _replace_word(
    text: str, promoted: Policy, location: Location, pattern: re.Pattern[str], word: str
) -> str:
    """Return the text with a match of `pattern` replaced by `word`, in the line at `location`.

    It is the first match on that line with which the text means the policy `promoted`. Raises
    ValueError where none does, or InvalidDocumentError where a result was invalid and none fits.
    """
    number = parse_document(text, promoted.source).line(location)
    lines = text.splitlines(keepends=True)
    line = lines[number - 1]
    refused: InvalidDocumentError | None = None
    for match in pattern.finditer(line):
        changed = line[: match.start()] + match["before"] + word + line[match.end() :]
        candidate = "".join((*lines[: number - 1], changed, *lines[number:]))
        try:
            if _meaning(parse_policy(candidate, promoted.source)) == _meaning(promoted):
                return candidate
        except InvalidDocumentError as error:
            refused = error
    if refused is not None:
        raise refused
    raise ValueError(f"{promoted.source}:{number}: this is not written plainly; change it by hand")


def _meaning(policy: Policy) -> tuple[str, tuple[Rule, ...]]:
    """Return (mode, rules without grants), the parts of a policy to compare.

    Grants for a rule may end with its promotion.
    """
    return policy.mode, with_certificate(policy, None).rules
