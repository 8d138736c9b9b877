"""One score for each conversation, as replies of the same conversation are not independent.

    seen = SeenConversations()
    seen.is_first("c1", at_s=0.0)       # True: it counts
    seen.is_first("c1", at_s=5.0)       # False: another turn, a retry, the same question again

Sequential tests and intervals assume independent replies. The turns of a chat, the steps of an
agent, retries, regenerations and load tests resemble each other, so only the first of them counts.
A conversation counts again after a day.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import Final

AGAIN_AFTER_S: Final = 86_400.0
MOST_CONVERSATIONS: Final = 20_000


class SeenConversations:
    """The conversations that have counted lately, at most `most`; the oldest are forgotten first.

    Where `again_after_s` is None, each conversation counts only once.
    """

    def __init__(
        self, again_after_s: float | None = AGAIN_AFTER_S, most: int | None = MOST_CONVERSATIONS
    ) -> None:
        """Start without conversations; without `most`, none is forgotten."""
        self._again_after_s = again_after_s
        self._most = most
        self._counted: OrderedDict[str, float] = OrderedDict()  # time of counting, in seconds

    def is_first(self, conversation: str | None, at_s: float = 0.0) -> bool:
        """Return whether a reply at `at_s` counts, and remember its conversation if it does.

        It counts if the conversation is unknown (None), has not been seen or is forgotten, or
        counted last at least `again_after_s` seconds ago. The oldest conversation beyond `most` is
        forgotten.
        """
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
        """Return whether a conversation counts again after `passed_s` seconds.

        False where `again_after_s` is None.
        """
        return self._again_after_s is not None and passed_s >= self._again_after_s
