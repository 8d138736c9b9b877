"""Requests without a word."""

from __future__ import annotations

import pytest

from calibrator.readers.evidence.conversation import split_request


@pytest.mark.parametrize("text", ["", "\n", " \n\n ", "\t", "\n" * 500])
def test_a_blank_request_is_all_instruction(text: str) -> None:
    """A blank request has no document, and nothing fails."""
    assert split_request(text) == (text, "")
