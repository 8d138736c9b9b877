"""The language of a text, and the language that a text asks for."""

from __future__ import annotations

import pytest

from calibrator.readers.evidence.acts.recognition.languages import language_named, language_of


@pytest.mark.parametrize(
    ("text", "language"),
    [
        ("The train leaves in ten minutes and it is on the other side of the station.", "en"),
        ("¿Dónde está la estación de tren?", "es"),
        ("Le train part dans dix minutes et il est de l'autre côté de la gare.", "fr"),
        ("Öffne die Einstellungen und wähle dort den Punkt Passwort ändern aus.", "de"),
        ("Il treno parte fra dieci minuti dal binario che è accanto alla torre.", "it"),
        ("Quais são os melhores bairros de Lisboa para morar com crianças?", "pt"),
        ("De trein vertrekt over tien minuten van het perron naast de toren.", "nl"),
        ("我想去北京看长城。", "zh"),
        ("東京に行きたいです。", "ja"),
        ("오늘은 날씨가 정말 좋네요.", "ko"),
        ("Где находится вокзал?", "ru"),
        ("أين محطة القطار؟", "ar"),
    ],
)
def test_languages_of_whole_sentences(text: str, language: str) -> None:
    """One or two sentences are enough to find the language."""
    assert language_of(text) == language


@pytest.mark.parametrize(
    "text",
    ["", "42", "OK.", "Paris", "x = a + b", "A. 5 AM\nB. 6 AM\nC. 7 AM", "`the of and to is`"],
)
def test_silence_where_it_is_unsure(text: str) -> None:
    """Numbers, names, options and code have no language."""
    assert language_of(text) is None


@pytest.mark.parametrize(
    ("text", "language"),
    [
        ("Translate into French: good night", "fr"),
        ("Antworte bitte auf Englisch.", "en"),
        ("Responde en inglés", "en"),
        ("Réponds en allemand", "de"),
        ("请用英文回答", "en"),
        ("What is the weather in Paris?", None),
        ("Answer in French or in German.", None),
    ],
)
def test_only_a_requested_language_counts(text: str, language: str | None) -> None:
    """Only a single language that is named as the one to write in counts."""
    assert language_named(text) == language
