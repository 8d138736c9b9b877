"""The recognition of a text's language by its script and its commonest words."""

from __future__ import annotations

import re
from collections import defaultdict
from functools import lru_cache
from typing import Final

from calibrator.readers.evidence.acts.recognition.wording import pattern
from calibrator.text.looking_for import letters_in

LOOK = 600  # characters of a text that are read
MIN_HITS = 3  # least number of different common words of a language in a text
MARGIN = 1.6  # least ratio to the common words of any other language

_COMMON: Final = {
    "en": "a i the and of to is are was were you your for that with it this have not be can in"
    " many them both some more all when who been than into out will from by on as at or an"
    " which they we he she has what how would there their but if my me do does",
    "es": "el la los las de del que y es en un una por para con no se su al lo como más pero sus le"
    " ya o este sí porque esta son entre está cuando muy sin sobre también me hasta hay qué tu te"
    " usted puede tiene ser eso mi yo",
    "fr": "le la les de des du et est en un une que qui dans pour pas ne sur se ce il elle au avec"
    " par plus son sa ses vous nous je tu mais ou où sont cette votre être d l c qu n s aux ces"
    " était leur très à",
    "de": "der die das und ist in den von zu mit sich des auf für nicht ein eine als auch es an"
    " werden aus er hat dass sie nach wird bei einer um am sind noch wie einem über einen so zum"
    " haben nur oder aber vor zur bis mehr durch ich du wir ihr mir dir kann im wenn dein mein",
    "it": "il lo la i gli le di del della che e è in un una per con non si su al come più ma da dei"
    " delle nel sono questo questa ha anche alla o se mi ti ci cui dal essere perché sua suo degli"
    " molto quando",
    "pt": "o a os as de do da dos das que e é em um uma por para com não se no na ao mais mas como"
    " seu sua ou quando muito nos já está eu também só pelo pela até isso ela entre são você tem"
    " foi ser pode à",
    "nl": "de het een en van in is dat op te zijn met voor niet aan er om ook als dan maar bij nog"
    " uit naar door over ze zich hij ik je we u wat kan wordt deze dit heeft of geen worden mijn",
    "sv": "och att det i en som på är av för med till den har de inte om ett han men var jag sig"
    " från vi så kan du eller när vid också mig min ska",
    "da": "og at det i en som på er af for med til den har de ikke om et han men var jeg sig fra vi"
    " så kan du eller når ved også mig min skal",
    "pl": "w na z się nie że jest o jak po co ale za od są dla przez przy tym tak ten już"
    " czy może być tego może oraz który która które",
    "cs": "v na se je že ve by pro si jsem za ale jako po jsou nebo od tak jak"
    " který která které není byl byla co už při",
    "tr": "ve bir bu da de için ile çok en ne ama daha gibi olarak var o mi kadar sonra ben sen"
    " olan değil olduğu her ya",
    "id": "dan yang di ini itu dengan untuk dari tidak dalam pada adalah ke akan bisa anda saya"
    " atau juga oleh karena ada sudah mereka",
}
_SIGNS: Final = {
    "es": "ñ¿¡",
    "de": "ßäöü",
    "pt": "ãõ",
    "sv": "åäö",
    "da": "æøå",
    "fr": "œûî",
    "pl": "łąęśżź",
    "cs": "ěřůšč",
    "tr": "ğışü",
}
# Single letters are left out: they are often variables or options.
_SETS: Final[dict[str, frozenset[str]]] = {
    name: frozenset(word for word in words.split() if len(word) > 1 or name == "en")
    for name, words in _COMMON.items()
}
_LANGUAGES_OF: Final = {
    word: tuple(name for name, common in _SETS.items() if word in common)
    for word in frozenset().union(*_SETS.values())
}
_LATIN: Final = re.compile(r"[\x00-\u036f]+")
_CODE: Final = pattern("languages", "code")
_SCRIPTS: Final = (
    ("kana", re.compile(r"[\u3040-\u30ff]")),
    ("zh", re.compile(r"[\u4e00-\u9fff]")),
    ("ko", re.compile(r"[\uac00-\ud7af\u1100-\u11ff]")),
    ("cyrillic", re.compile(r"[\u0400-\u04ff]")),
    ("ar", re.compile(r"[\u0600-\u06ff]")),
    ("he", re.compile(r"[\u0590-\u05ff]")),
    ("el", re.compile(r"[\u0370-\u03ff]")),
    ("th", re.compile(r"[\u0e00-\u0e7f]")),
    ("hi", re.compile(r"[\u0900-\u097f]")),
)

NAMES: Final = {
    "en": "English",
    "es": "Spanish",
    "fr": "French",
    "de": "German",
    "it": "Italian",
    "pt": "Portuguese",
    "nl": "Dutch",
    "sv": "Swedish",
    "da": "Danish",
    "pl": "Polish",
    "cs": "Czech",
    "tr": "Turkish",
    "id": "Indonesian",
    "zh": "Chinese",
    "ja": "Japanese",
    "ko": "Korean",
    "ru": "Russian",
    "uk": "Ukrainian",
    "ar": "Arabic",
    "he": "Hebrew",
    "el": "Greek",
    "th": "Thai",
    "hi": "Hindi",
}
_CALLED: Final = {
    "en": "english inglés ingles anglais englisch inglese inglês engels anglicky 英语 英文 英語",
    "es": "spanish español espanol espagnol spanisch spagnolo espanhol spaans castellano 西班牙语",
    "fr": "french francés frances français francais französisch franzosisch francese francês frans"
    " 法语 フランス語",
    "de": "german alemán aleman allemand deutsch tedesco alemão duits 德语 ドイツ語",
    "it": "italian italiano italien italienisch italiaans 意大利语",
    "pt": "portuguese portugués portugues portugais portugiesisch portoghese português portugees"
    " 葡萄牙语",
    "nl": "dutch holandés néerlandais niederländisch olandese holandês nederlands 荷兰语",
    "sv": "swedish sueco suédois schwedisch svedese svenska zweeds",
    "da": "danish danés danois dänisch danese dansk deens",
    "pl": "polish polaco polonais polnisch polacco polonês polski pools",
    "cs": "czech checo tchèque tschechisch ceco česky čeština",
    "tr": "turkish turco turc türkisch türkçe turks",
    "id": "indonesian indonesio indonésien indonesisch",
    "zh": "chinese mandarin chino chinois chinesisch cinese chinês chinees 中文 汉语 中国語",
    "ja": "japanese japonés japonais japanisch giapponese japonês japans 日语 日文 日本語",
    "ko": "korean coreano coréen koreanisch koreaans 韩语 한국어 韓国語",
    "ru": "russian ruso russe russisch russo русский русском 俄语",
    "ar": "arabic árabe arabe arabisch arabo 阿拉伯语",
    "el": "greek griego grec griechisch greco grieks",
    "hi": "hindi",
    "uk": "ukrainian",
    "he": "hebrew",
    "th": "thai",
}
_BY_NAME: Final = {word: code for code, words in _CALLED.items() for word in words.split()}
_TARGET: Final = pattern("languages", "target")


_UKRAINIAN: Final = pattern("languages", "ukrainian")


@lru_cache(maxsize=64)
def language_of(text: str) -> str | None:
    """Return the code of the main language of a text, such as `en`; None if it is not clear.

    The first 600 characters without code and links are read. Scripts decide, or the commonest
    words of 13 languages in Latin script.
    """
    text = _CODE.sub(" ", text[:LOOK]) if "`" in text or "://" in text else text[:LOOK]
    if text.isascii():
        return _by_common_words(text)
    letters = sum(map(len, letters_in(text)))
    others = _LATIN.sub("", text)
    found = {name: len(pattern.findall(others)) for name, pattern in _SCRIPTS}
    if found["kana"] >= 2 and found["kana"] + found["zh"] > 0.4 * letters:
        return "ja"
    name, count = max(found.items(), key=lambda each: each[1])
    if letters >= 2 and count > 0.5 * letters and name != "kana":
        if name == "cyrillic":
            return "uk" if _UKRAINIAN.search(text) else "ru"
        return name
    return _by_common_words(text) if sum(found.values()) < 0.1 * letters else None


def _by_common_words(text: str) -> str | None:
    """Return the language whose frequent words occur most in a text; None if it is not clear.

    Clear are at least three different words, 1.6 times as many as of any other language, and a
    tenth of all. Typical letters such as `ß` count as two words.
    """
    lower = text.lower()
    words = letters_in(lower)
    hits: defaultdict[str, int] = defaultdict(int)
    distinct = set(words)
    for word in distinct & _LANGUAGES_OF.keys():
        for name in _LANGUAGES_OF[word]:
            hits[name] += 1
    if not hits:
        return None
    if not lower.isascii():
        for name, signs in _SIGNS.items():
            hits[name] += 2 * any(sign in lower for sign in signs)
    counts = sorted(hits.items(), key=lambda each: -each[1])
    (name, first), (_, second) = (*counts, ("", 0))[:2]
    if first < MIN_HITS or first < MARGIN * second or first < 0.1 * len(distinct):
        return None
    return name


def language_named(text: str) -> str | None:
    """Return the code of the language that a text asks for: `fr` for `answer in French`.

    None if it names none or several.
    """
    named = {
        _BY_NAME[word.lower()]
        for groups in _TARGET.findall(text[:LOOK])
        for word in groups
        if word.lower() in _BY_NAME
    }
    return named.pop() if len(named) == 1 else None


def languages_mentioned(text: str) -> set[str]:
    """Return the codes of the languages that a text's first 600 characters name.

    Names in several languages are known: {`fr`} for `francés`.
    """
    words = set(letters_in(text[:LOOK].lower()))
    return {
        code
        for word, code in _BY_NAME.items()
        if word in words or (word[0] > "⺀" and word in text)
    }
