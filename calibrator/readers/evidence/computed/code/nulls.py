"""Values that may be null in Java and C#, and that the code uses without a look at them."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

from calibrator.readers.evidence.finding import MAX_SHIFT, Finding
from calibrator.text.guarded import guarded

_NULL_ALLOWED: Final = guarded(
    r"\b(?:for|on|if|when|with|handles?|allow\w*|accepts?|given|bei|für|wenn|para|si|pour)\b"
    r"[^.?!\n]{0,30}\bnull\b|\bnull[- ]?safe\b"
    r"|\bnull\b[^.?!\n]{0,30}\b(?:returns?|gives?|false|true|0)\b",
    re.IGNORECASE,
)
_METHOD: Final = re.compile(
    r"\b(?:static\s+|public\s+|private\s+|final\s+)*[\w<>\[\]?]{1,60}\s+(?P<n>\w+)\s*"
    r"\((?:final\s+)?(?:String|string|Integer|List<[^<>]*>|Object|[A-Z]\w*)\??\s+(?P<p>\w+)\)"
    r"[^{;]{0,60}\{(?P<b>[^{}]*)\}"
)


def null_bugs(code: str, request: str) -> Iterator[Finding]:
    """Yield a method whose only parameter may be null and is used first of all."""
    if not _NULL_ALLOWED.search(request):
        return
    found = _METHOD.search(code)
    if found is None:
        return
    name = re.escape(found["p"])
    if re.search(rf"\b{name}\.\w", found["b"]) and not re.search(
        rf"\b{name}\s*[!=]=|[!=]=\s*{name}\b|\b{name}\?\.|\b{name}\s+is\b|\w\({name}\)", found["b"]
    ):
        yield Finding(False, -MAX_SHIFT, f"{found['n']} fails if {found['p']} is null")
