"""The recognition of a text's language by its script and its most frequent words."""

from __future__ import annotations

import re
import unicodedata
from collections import Counter
from collections.abc import Sequence
from functools import cache
from operator import itemgetter
from typing import Final, NamedTuple

MAX_TEXT: Final = 4000  # characters that are read
MIN_WORDS: Final = 4
MIN_LETTERS: Final = 4
_SHARE: Final = 0.12  # share of the words that must be function words of the language

# Frequent words that few other of these languages share.
_WORDS: Final = {
    "en": "why people who where me suggest explain describe list name"
    " create write give make provide some any one two three four five most other time like"
    " each such use used using first then so than he she his her had did no only up out the"
    " and of to is are was were that this with for not you have has from they which would"
    " there their what been will can about should into than your its be by it as at or when"
    " how more also these but my we our if do does",
    "de": "gibt morgen heute keinen keine kein jetzt dann hier ob mich"
    " mir uns euch haben ihren seine sehr wurden sollte müssen können bitte danke habe hast hatte"
    " bin bist warum welche"
    " welcher der die das und ist nicht ein eine einen einem einer mit auf für von den dem des"
    " sich auch wird sind als wie bei oder nach aus wir ich sie haben hat werden zum zur im"
    " durch über nur noch aber dass kann wurde war es du mein ihr ihre diese dieser wenn man"
    " um vor unter mehr",
    "fr": "bonjour merci aujourd'hui demain hier quel quelle où comment"
    " pourquoi aussi peut peuvent doit cet ces tous toutes après avant nos vos le la les des"
    " est une et dans pour que qui pas vous nous sont avec sur plus par ce cette il elle du au"
    " aux mais ou être avoir fait ne se sa son ses leur leurs je tu mon votre notre ont été"
    " comme cela très c'est d'un d'une l'on qu'il n'est j'ai où",
    "es": "dónde cómo cuál hoy mañana ayer hola gracias buenos días él"
    " ella ellos nos hacer puede pueden debe estos estas eso aquí porque donde hasta el la los"
    " las de que y en un una es por con no para su como más pero está son del al lo se este"
    " esta muy ser ha han fue hay cuando también sus le ya todo entre sin sobre tiene me mi"
    " qué yo usted nuestro desde",
    "pt": "o os as de que e do da em um uma é para com não por mais dos"
    " das como mas foi ao ele são na no se também sua seu pelo pela você ou ser quando muito"
    " há nos já está eu tem isso meu",
    "it": "il lo gli di che e è un una per con non sono della del dei"
    " delle nel nella si come anche più ma questo questa al alla dal ha hanno essere o se ci"
    " mi i le da su io sua suo loro molto perché",
    "nl": "de het een en van dat niet op te zijn met voor die er aan om"
    " ook als bij maar naar dan wordt door uit nog worden deze heeft ik je hij wij we zij was"
    " kan meer over geen mijn",
    "sv": "och det att en är som på för med av inte den till har de ett"
    " om var vi jag kan från eller men så när också sig ska du han hon mycket där vara",
    "da": "og det at en er som på for med af ikke den til har de et om"
    " var vi jeg kan fra eller men så når også sig skal du han hun meget der være blev efter",
    "no": "og det at en er som på for med av ikke den til har de et om"
    " var vi jeg kan fra eller men så når også seg skal du han hun mye der være ble etter",
    "fi": "ja on ei että se oli ovat mutta myös kun tai niin hän sen"
    " ole joka olla voi kuin mitä minä sinä tämä tämän ovat jos vain",
    "pl": "i w nie na się to jest że z do jak o co ale po tym są za od"
    " przez dla tak czy już jego był ma być który która można oraz jestem",
    "cs": "a je se na v že to s z do o jak ale po za by pro jsou ve od"
    " nebo když být který která tak jako jsem si také může není byl",
    "tr": "ve bir bu için ile da de çok olarak daha ne gibi var olan en"
    " ama ben o kadar sonra değil mi her ya şu onun",
    "hu": "a az és hogy nem egy is van ez meg de csak mint volt lesz"
    " már vagy ha még kell ami aki minden nagyon azt",
    "ro": "și de la în cu nu este pe un o că mai din să pentru care"
    " sunt au ca se ce sau dar prin fost am lui după",
    "id": "yang dan di dengan untuk dari ini itu pada tidak adalah akan"
    " ke dalam juga saya atau oleh dapat karena lebih anda bisa ada telah mereka",
    "et": "ja on ei et see oli ka kui oma mis aga siis või ning selle ta seda olid veel nii ma kes",
    "vi": "và là của có không được trong cho với các một những này để"
    " khi người đã đến như tôi về từ cũng ra",
    "ca": "el la els les de que i en un una és per amb no del al més"
    " com però està són aquest aquesta molt ser ha també seva seu dels",
    "sw": "na ya wa kwa ni katika la za kama hii hiyo lakini au si kuwa pia cha yake watu",
    "tl": "ang ng sa na mga ay at ito hindi para may kung ko siya niya mo nang ni po",
}
NAMES: Final = {
    "en": "English", "de": "German", "fr": "French", "es": "Spanish", "pt": "Portuguese",
    "it": "Italian", "nl": "Dutch", "sv": "Swedish", "da": "Danish", "no": "Norwegian",
    "fi": "Finnish", "pl": "Polish", "cs": "Czech", "tr": "Turkish", "hu": "Hungarian",
    "ro": "Romanian", "id": "Indonesian", "et": "Estonian", "vi": "Vietnamese", "ca": "Catalan",
    "sw": "Swahili", "tl": "Tagalog", "ru": "Russian", "uk": "Ukrainian", "bg": "Bulgarian",
    "zh": "Chinese", "ja": "Japanese", "ko": "Korean", "ar": "Arabic", "fa": "Persian",
    "he": "Hebrew", "el": "Greek", "th": "Thai", "hi": "Hindi", "mr": "Marathi", "ne": "Nepali",
    "bn": "Bengali", "ta": "Tamil", "te": "Telugu", "kn": "Kannada", "ml": "Malayalam",
    "gu": "Gujarati", "pa": "Punjabi", "si": "Sinhala", "km": "Khmer", "ka": "Georgian",
    "hy": "Armenian", "am": "Amharic", "ur": "Urdu", "lo": "Lao", "my": "Burmese",
}  # fmt: skip
_OTHER_NAMES: Final = {
    "deutsch": "de", "deutsche": "de", "deutschen": "de", "englisch": "en", "englische": "en",
    "französisch": "fr", "französische": "fr", "spanisch": "es", "spanische": "es",
    "italienisch": "it",
    "portugiesisch": "pt", "niederländisch": "nl", "russisch": "ru", "chinesisch": "zh",
    "japanisch": "ja", "polnisch": "pl", "türkisch": "tr", "schwedisch": "sv",
    "inglés": "en", "español": "es", "alemán": "de", "francés": "fr", "italiano": "it",
    "portugués": "pt", "chino": "zh", "japonés": "ja", "ruso": "ru", "neerlandés": "nl",
    "anglais": "en", "allemand": "de", "espagnol": "es", "français": "fr", "italien": "it",
    "portugais": "pt", "chinois": "zh", "japonais": "ja", "russe": "ru", "néerlandais": "nl",
    "mandarin": "zh", "simplified chinese": "zh", "traditional chinese": "zh", "farsi": "fa",
    "castilian": "es", "brazilian portuguese": "pt", "european portuguese": "pt", "filipino": "tl",
    "finnois": "fi", "polonais": "pl", "suédois": "sv", "arabe": "ar", "turc": "tr", "coréen": "ko",
    "grec": "el", "coreano": "ko", "árabe": "ar", "polaco": "pl", "sueco": "sv", "hindi": "hi",
    "danois": "da", "finés": "fi", "griego": "el", "flemish": "nl", "kiswahili": "sw",
}  # fmt: skip
_SCRIPTS: Final = {
    "CYRILLIC": ("ru", "uk", "bg"), "CJK": ("zh", "ja"), "HIRAGANA": ("ja",), "KATAKANA": ("ja",),
    "HANGUL": ("ko",), "ARABIC": ("ar", "fa", "ur"), "HEBREW": ("he",), "GREEK": ("el",),
    "THAI": ("th",), "DEVANAGARI": ("hi", "mr", "ne"), "BENGALI": ("bn",), "TAMIL": ("ta",),
    "TELUGU": ("te",), "KANNADA": ("kn",), "MALAYALAM": ("ml",), "GUJARATI": ("gu",),
    "GURMUKHI": ("pa",), "SINHALA": ("si",), "KHMER": ("km",), "GEORGIAN": ("ka",),
    "ARMENIAN": ("hy",), "ETHIOPIC": ("am",), "LAO": ("lo",), "MYANMAR": ("my",),
}  # fmt: skip
# Languages that are hard to distinguish in short texts.
_ALIKE: Final = (
    {"da", "no", "sv"}, {"es", "pt", "ca"}, {"ru", "uk", "bg"}, {"zh", "ja"}, {"ar", "fa", "ur"},
    {"hi", "mr", "ne"}, {"fi", "et"}, {"de", "nl"}, {"it", "es"}, {"fr", "ca"}, {"it", "ca"},
    {"it", "pt"},
)  # fmt: skip
# Letters that few languages have.
_MARKS: Final = {
    **dict.fromkeys("ß", ("de",)), **dict.fromkeys("ñ¿¡", ("es",)), **dict.fromkeys("ãõ", ("pt",)),
    **dict.fromkeys("łżźśćęą", ("pl",)), **dict.fromkeys("őű", ("hu",)),
    **dict.fromkeys("ğış", ("tr",)),
    **dict.fromkeys("ěřů", ("cs",)), **dict.fromkeys("țșă", ("ro",)),
    **dict.fromkeys("ơưđ", ("vi",)),
    **dict.fromkeys("å", ("sv", "da", "no")), **dict.fromkeys("ø", ("da", "no")),
}  # fmt: skip
_WORD: Final = re.compile(r"[^\W\d_]+(?:'[^\W\d_]+)?")


class _Speakers(NamedTuple):
    """The languages that have a word, and the share of it for each."""

    languages: tuple[str, ...]
    share: float
    are_alike: bool  # a single language, or such as are hard to distinguish

    @classmethod
    def from_languages(cls, languages: Sequence[str]) -> _Speakers:
        """Return the speakers of a word that these languages share; each gets an equal share."""
        is_one = len(languages) == 1 or any(each.issuperset(languages) for each in _ALIKE)
        return cls(tuple(languages), 1 / len(languages), is_one)


@cache
def _languages_by_word() -> dict[str, _Speakers]:
    """Return the languages that have each of the frequent words, such as `und`."""
    table: dict[str, list[str]] = {}
    for language, words in _WORDS.items():
        for word in {word for word in words.split() if len(word) > 1}:
            table.setdefault(word, []).append(language)
    return {word: _Speakers.from_languages(languages) for word, languages in table.items()}


@cache
def _languages_by_letter() -> dict[str, _Speakers]:
    """Return the languages that have each of the rare letters, such as `ß`."""
    return {letter: _Speakers.from_languages(languages) for letter, languages in _MARKS.items()}


@cache
def language_names() -> dict[str, str]:
    """Return language codes such as `de` by names in lower case, such as `german` and `deutsch`.

    The names are English, German, Spanish and French.
    """
    return {**{name.casefold(): code for code, name in NAMES.items()}, **_OTHER_NAMES}


@cache
def name_pattern() -> str:
    """Return a regular expression, without group, of the name of any known language."""
    names = sorted(language_names(), key=len, reverse=True)
    return "(?:" + "|".join(map(re.escape, names)) + ")"


def script_of(text: str) -> tuple[str, float]:
    """Return the main script of a text, such as `LATIN`, and its share of the letters, 0 to 1.

    ("", 0.0) for a text without letters. Japanese is `HIRAGANA`. Only 1,000 characters are read.
    """
    letters = [*filter(str.isalpha, text[:1000])]
    if not letters:
        return "", 0.0
    if max(letters) < "ɐ":
        return "LATIN", 1.0
    counts = Counter(unicodedata.name(character, "?").split()[0] for character in letters)
    for name in ("HIRAGANA", "KATAKANA"):  # Japanese text has many Chinese characters
        if counts[name] * 10 > len(letters):
            return "HIRAGANA", 1.0
    name, count = counts.most_common(1)[0]
    return name, count / len(letters)


def languages_of(text: str, least: int = MIN_WORDS) -> frozenset[str]:
    """Return the codes of languages that a text may be in, such as {`de`}; empty if not clear.

    Similar languages such as Danish and Norwegian may both be in it. `least` is the smallest number
    of words of a text in Latin script that is judged.
    """
    text = text[:MAX_TEXT]
    script, share = script_of(text)
    if share < 0.6 or sum(map(str.isalpha, text[:200])) < MIN_LETTERS:
        return frozenset()
    if script in _SCRIPTS:
        return frozenset(_SCRIPTS[script])
    if script != "LATIN":
        return frozenset()
    words = _WORD.findall(text.replace("’", "'"))
    if len(words) < least:
        return frozenset()
    scores, own = _scores(words)
    if not scores:
        return frozenset()
    best, most = max(scores.items(), key=itemgetter(1))
    group = set().union(*(each for each in _ALIKE if best in each), {best})
    is_sure = len(own[best]) >= 2 or (own[best] and most >= 2 and len(words) <= 12)
    if most < _SHARE * len(words) or not is_sure:
        return frozenset()
    found = {best}
    if len(own[best]) < 6:
        found |= {language for language in group if scores.get(language, 0.0) * 3 >= most}
    if any(language not in group and count * 2 > most for language, count in scores.items()):
        return frozenset()
    return frozenset(found)


def _scores(words: list[str]) -> tuple[dict[str, float], dict[str, set[str]]]:
    """Return a score for each language, and the words that only it or similar languages have.

    A word shared by n languages gives each 1/n.
    """
    by_word = _languages_by_word()
    scores: dict[str, float] = {}
    own: dict[str, set[str]] = {}
    for written in words:
        word = written.casefold()
        found = by_word.get(word)
        if found is None:
            found = None if word.isascii() or written[:1].isupper() else _languages_marked(word)
            if found is None:
                continue
        languages, share, are_alike = found
        for language in languages:
            scores[language] = scores.get(language, 0.0) + share
            if are_alike:
                own.setdefault(language, set()).add(word)
    for language in scores:
        own.setdefault(language, set())
    return scores, own


def _languages_marked(word: str) -> _Speakers | None:
    """Return the languages of the first rare letter in a word, such as `ß`; None without one."""
    by_letter = _languages_by_letter()
    return next((by_letter[letter] for letter in word if letter in by_letter), None)
