"""One score for each conversation: replies of the same one are no independent evidence.

    seen = SeenConversations()
    seen.is_first("c1", at_s=0.0)       # True: it counts
    seen.is_first("c1", at_s=5.0)       # False: another turn, a retry, the same question again

Sequential tests and intervals suppose replies that have nothing to do with each other. The turns of
a chat, the steps of an agent, retries, regenerations and load tests are like each other, so the
first of them counts and the others do not, for a day: then a conversation counts again.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import Final

AGAIN_AFTER_S: Final = 86_400.0
MOST_CONVERSATIONS: Final = 20_000


class SeenConversations:
    """Which conversations have counted lately; of too many, those that counted first are forgotten.

    Without `again_after_s` each counts once for ever.
    """

    def __init__(
        self, again_after_s: float | None = AGAIN_AFTER_S, most: int | None = MOST_CONVERSATIONS
    ) -> None:
        self._again_after_s = again_after_s
        self._most = most
        self._counted: OrderedDict[str, float] = OrderedDict()  # when each did, in seconds

    def is_first(self, conversation: str | None, at_s: float = 0.0) -> bool:
        """Whether a reply at this time counts; a reply of no known conversation always does."""
        if conversation is None:
            return True
        counted_at = self._counted.get(conversation)
        if counted_at is not None and not self._is_over(at_s - counted_at):
            return False
        self._counted[conversation] = at_s
        self._counted.move_to_end(conversation)
        if self._most is not None and len(self._counted) > self._most:
            self._counted.popitem(last=False)
        return True

    def _is_over(self, passed_s: float) -> bool:
        return self._again_after_s is not None and passed_s >= self._again_after_s
