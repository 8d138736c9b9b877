"""The client of the engine `scorer`, our own scoring server (`pinocchio serve --scorer-only`)."""

from __future__ import annotations

from collections.abc import Sequence

from calibrator import Item, Score
from proxy.config.settings.engines import ScoringServer, can_stand_in_a_header
from proxy.scoring.engines.errors import EngineError, field_of
from proxy.scoring.engines.json_client import JsonClient
from proxy.scoring.engines.scorer_protocol import SCORE_PATH, SCORER_PATH, items_body, read_scores


class ScoringServerEngine:
    """A scoring server; `expected` is the calibrator's name in the configuration, None for any.

    The server returns the number that its calibrator would give in this process, under the same
    name.
    """

    def __init__(self, settings: ScoringServer, expected: str | None, timeout_s: float) -> None:
        self._client = JsonClient(settings.base_url, settings.api_key.get_secret_value(), timeout_s)
        self.address = f"scoring server {self._client.base_url}"
        self.reads_images = self.reads_tool_use = False
        self.opinion = ""
        self._reads_messages = self._reads_facts = False
        self._name = expected
        self._expected = expected

    async def connect(self) -> str:
        """Ask the server for its calibrator and what it reads, and return the calibrator's name.

        Sets the attributes of this engine. Raises EngineError if it is another calibrator than the
        configured one.
        """
        facts = await self._client.get(SCORER_PATH)
        name = field_of(facts, "calibrator", str)
        if not can_stand_in_a_header(name):
            raise EngineError("engine_answer", "has a name that a header cannot carry")
        if self._expected not in (None, name):
            text = f"scores with {name}, and the configuration names {self._expected}"
            raise EngineError("engine_other", text)
        self._name, self.reads_images = name, field_of(facts, "reads_images", bool)
        self.reads_tool_use = facts.get("reads_tool_use") is True  # older servers omit it
        self._reads_messages = facts.get("reads_messages") is True
        self._reads_facts = facts.get("reads_facts") is True
        opinion = facts.get("opinion", "")
        self.opinion = (
            opinion if isinstance(opinion, str) and can_stand_in_a_header(opinion) else ""
        )
        return name

    async def score(self, items: Sequence[Item]) -> list[Score]:
        """Return one score for each item, in order.

        Raises EngineError, and NotScorableError or CalibratorError if an item has no score.
        """
        assert self._name is not None  # it is connected
        answer = await self._client.post(
            SCORE_PATH,
            items_body(
                items,
                has_tool_use=self.reads_tool_use,
                has_others=bool(self.opinion),
                has_messages=self._reads_messages,
                has_facts=self._reads_facts,
            ),
        )
        return read_scores(answer, self._name, len(items))

    async def aclose(self) -> None:
        await self._client.aclose()
