"""The wishes for case, first and last words, words to use or avoid, and marks."""

from __future__ import annotations

import re
from typing import Final

from calibrator.readers.evidence.computed.form import counting

_Q: Final = r"[\"“”«»„‟'‘’`]"
_QUOTED: Final = re.compile(
    r"[\"“„«](?P<a>[^\"”“»\n]{1,300})[\"”“»]|(?<!\w)['‘`]"
    r"(?P<b>[^'’`\n]{1,200})['’`](?!\w)"
)
_REPLY: Final = (
    r"(?:your |the |its |my |ta |votre |tu |la |deine |die )?"
    r"(?:entire |whole |complete |full |ganze |toute )?(?:response|answer|reply|message|output"
    r"|text|poem|letter|email|essay|post|antwort|respuesta|réponse|texte|texto|song|story|tweet|it"
    r"|description|article)"
)
_UPPER: Final = re.compile(
    r"\b(?:upper[- ]?case|capital letters|all[- ]caps|all capitals|in capitals|block letters"
    r"|großbuchstaben|mayúsculas?|majuscules?|capslock|capitali[sz]e (?:every letter|all (?:the )?"
    r"(?:letters|your words)|everything))\b",
    re.IGNORECASE,
)
_LOWER: Final = re.compile(
    r"\b(?:lower[- ]?cases?|small letters|kleinbuchstaben|minúsculas?|minuscules?|(?:without|no"
    r"|not use|avoid)(?: any| using any)? capital(?: letter)?s?|no capitals)\b",
    re.IGNORECASE,
)
_PARTIAL: Final = re.compile(
    r"\b(?:consist\w*|strings?|input|first|title|heading|headings|names?|keys?|words? (?:in|with"
    r"|that)|words? written|at least|at most|more than|less than|fewer than|exactly|\d+|one|two"
    r"|three|times|each word|every word|sentence|beginning|start|start of|initial|some|certain"
    r"|both|and lower|and upper|upper- and|mix\w*|labels?|sql|keywords|variable|constant|function"
    r"|convert|converts|email|code|password|column|key points|letters? \w\b|para|mencion\w*"
    r"|palabras (?:que|completas|escritas)|mots (?:en|écrits)|how|what|why|difference|number of"
    r"|highlight|emphasi[sz]e|important|only (?:the|for))\b",
    re.IGNORECASE,
)
_WHOLE: Final = re.compile(
    r"\b(?:all|entire|entirely|only|whole|everything|complete(?:ly)?|solely|just|answer|reply"
    r"|response|write|in|fully|ganz|nur|todo|toda|solo|sólo|enteramente|tout|toute|entièrement"
    r"|uniquement|output|antworte|responde|réponds)\b",
    re.IGNORECASE,
)


def case_fault(sentences: list[str], reply: str) -> str | None:
    """Describe how a reply breaks a wish such as `in all lowercase`; None if it breaks none."""
    text = re.sub(r"```.*?```", " ", reply, flags=re.DOTALL)
    for sentence in sentences:
        for pattern, name in ((_UPPER, "upper"), (_LOWER, "lower")):
            found = pattern.search(sentence)
            if not found or not _WHOLE.search(sentence):
                continue
            around = (
                sentence[max(0, found.start() - 60) : found.start()]
                + " . "
                + sentence[found.end() : found.end() + 40]
            )
            is_none = found[0].casefold().startswith(("no", "with", "avoid", "capitali"))
            if _PARTIAL.search(around) and not (
                is_none
                or re.search(
                    r"\b(?:entire|whole|all letters|all of your|everything)\b",
                    sentence,
                    re.IGNORECASE,
                )
            ):
                continue
            if re.search(
                r"\b(?:not|don't|avoid|never|without|nicht|no|sin|sans"
                r"|pas)\b[^.]{0,70}$",
                sentence[: found.start()],
                re.IGNORECASE,
            ):
                continue
            letters = [
                character
                for character in text
                if character.isalpha() and character.upper() != character.lower()
            ]
            wrong = sum(
                character.islower() if name == "upper" else character.isupper()
                for character in letters
            )
            if len(letters) >= 2 and wrong:
                return f"the reply is not all in {name} case"
    return None


_START: Final = re.compile(
    r"\b(?:start|begin|starting|beginning|open|starts|begins|beginne|beginn|starte|empieza"
    rf"|comienza|commence[rz]?|débute[rz]?)\b\s*(?:{_REPLY})?\s*(?:with|by saying|mit|con|par"
    r"|avec)\s+(?:the |dem |la |le |el |exactly |this )*(?:exact |following )?(?:words?|phrase"
    r"|sentence|text|letters?|wort|satz|buchstaben|palabra|letra|frase|mot|lettre"
    r"|phrase)?\s*:?\s*",
    re.IGNORECASE,
)
_END: Final = re.compile(
    r"\b(?:end|finish|conclude|ends?|ending|finishing|close|beende|ende|termina|finaliza|acaba"
    rf"|finis|termine[rz]?|finissez|terminez|conclu[aes]\w*|clôture[rz]?)\b\s*(?:{_REPLY})?\s*"
    r"(?:with|by saying|mit|con|par|avec|off with)\s+(?:the |dem |la |le |el |exactly |this "
    r"|these )*(?:exact |following |genauen |exacta |exacte )?(?:words?|phrase|sentence|text"
    r"|letters?|wort|satz|palabra|letra|frase|mot|lettre|question)?\s*(?:exacta|exacte"
    r"|exactly)?\s*:?\s*",
    re.IGNORECASE,
)
_INNER: Final = re.compile(
    r"\b(?:each|every|all|paragraphs?|lines?|words?|bullets?|items?|sections?|names? (?:that"
    r"|which)|that (?:start|begin|end)|stanzas?|titles?|post-?script\w*|notes?|cities|countries"
    r"|verse|cada|chaque|jeder?|jedes|párrafo|paragraphe|second|third|last|segundo|deuxième)\b",
    re.IGNORECASE,
)


def ends_fault(sentences: list[str], reply: str) -> str | None:
    """Describe how a reply breaks a wish for its first or last words, or return None.

    Examples of wishes are `Start with "Dear"` and `End with "Bye"`.
    """
    body = counting.plain_text(reply).strip()
    for sentence in sentences:
        for pattern, is_start in ((_START, True), (_END, False)):
            for found in pattern.finditer(sentence):
                before = sentence[: found.start()] + " " + found[0]
                if _INNER.search(
                    re.sub(
                        r"\b(?:the )?(?:words?|phrase)\b\s*:?\s*$", "", before, flags=re.IGNORECASE
                    )[-60:]
                ):
                    continue
                wanted = _object(sentence[found.end() :])
                if wanted is None or re.search(
                    r"\b(?:not|never|don't|avoid)\b",
                    sentence[max(0, found.start() - 25) : found.start()],
                    re.IGNORECASE,
                ):
                    continue
                is_letter = len(wanted) == 1 or "letter" in found[0].casefold()
                if not _is_at(body, wanted, is_start=is_start, is_letter=is_letter):
                    where = "start" if is_start else "end"
                    return f'the reply does not {where} with "{wanted[:60]}"'
    return None


def _object(rest: str) -> str | None:
    """Return the words at the start of `rest`: quoted ones, or one capitalised word; else None."""
    quoted = _QUOTED.match(rest)
    if quoted:
        return (quoted["a"] or quoted["b"]).strip()
    single = re.match(r"(?P<w>[A-Z][\w'’-]*[!?]?)(?:[.,;]|\s*$|\s+and\b)", rest)
    if single and single["w"] not in ("A", "I", "The", "P"):
        return single["w"]
    return None


def _letters(text: str) -> str:
    """Return a text in lower case with single spaces and without punctuation."""
    return " ".join(re.sub(r"[^\w]+", " ", text.casefold()).split())


def _is_at(body: str, wanted: str, *, is_start: bool, is_letter: bool) -> bool:
    """Return whether a reply begins (`is_start`) or ends with some words, a letter or a mark."""
    letters, words = _letters(body), _letters(wanted)
    if not words:  # a mark, such as !
        plain = body.strip(" \n*_\"'")
        return plain.startswith(wanted) if is_start else plain.endswith(wanted)
    if is_letter:
        return letters.startswith(words) if is_start else letters.endswith(words)
    if is_start:
        return letters.startswith(words)
    return letters.endswith(words)


_EVERY: Final = re.compile(
    r"\b(?:every|each|all(?: the| of the)?) words?\b[^.]{0,20}\b(?:starts?|begins?|starting"
    r"|beginning) with (?:the )?(?:same )?(?:letter )?[\"“'‘]?(?P<l>[A-Za-z])[\"”'’]?(?!\w)",
    re.IGNORECASE,
)
_LETTERED: Final = re.compile(
    r"\b(?:an?|one) (?P<n>\d{1,2}|three|four|five|six|seven|eight"
    r"|nine|ten)[- ]letter word\b",
    re.IGNORECASE,
)


def letters_fault(sentences: list[str], reply: str) -> str | None:
    """Name a word that breaks a wish such as `every word starts with S` or `a 5-letter word`.

    None if no word does.
    """
    words = counting.words(reply)
    for sentence in sentences:
        found = _EVERY.search(sentence)
        if found and len(words) <= 60:
            wrong = [word for word in words if word[:1].casefold() != found["l"].casefold()]
            if wrong and len(words) > 1:
                return f'"{wrong[0]}" does not start with {found["l"]}'
        found = _LETTERED.search(sentence)
        if found and len(words) == 1:
            written = found["n"].casefold()
            number = counting.value_of(written)
            if len(words[0]) != number:
                return f'"{words[0]}" has {len(words[0])} letters, not {number}'
    return None


_AVOID: Final = re.compile(
    r"(?:n't|\b(?:do not|does not|without|avoid|never|not|no|refrain from|should not|must not"
    r"|cannot|can't|ohne|nicht|vermeide|kein\w*|sin|evita|no (?:uses|utilices|incluyas)|sans"
    r"|évite[zr]?|n'utilise[zr]?|n'emploie[zr]?|ne pas))\s+(?:\w+ ){0,3}?(?:use|using|include"
    r"|including|mention|mentioning|say|saying|contain|containing|write|writing|utter|the"
    r"|benutz\w*|verwend\w*|usar|utiliser|employer)?\s*(?:of )?(?:any of )?(?:the |any |das |die "
    r"|der |la |las |el |le |les |following )*(?P<k>words?|keywords?|phrases?|terms?|letters?|wort"
    r"|wörter|buchstaben?|palabras?|letras?|mots?|lettres?)\s*:?\s*",
    re.IGNORECASE,
)
_USE: Final = re.compile(
    r"\b(?:includ(?:e|es|ing)|us(?:e|es|ing)|contain(?:s|ing)?|mention(?:s|ing)?|incorporat(?:e|es"
    r"|ing)|with|add(?:ing)?|verwende|benutze|enthält|incluy[ae]\w*|incluir|usa|utiliza|contener"
    r"|contenga|inclu[eas]\w*|inclure|utilise[rz]?|contenir|mentionne[rz]?)\s+(?:all |both |each "
    r"|at least )*(?:of )?(?:the |these |this |das |die |la |las |el |le |les |ces |following "
    r"|exact )*(?P<k>words?|keywords?|phrases?|terms?|sentence|wort|wörter|palabras?(?: clave)?"
    r"|mots?(?: clés?|-clés?)?|termes?|frase)\s*:?\s*",
    re.IGNORECASE,
)


def words_fault(sentences: list[str], reply: str) -> str | None:
    """Describe that a reply lacks a word it must use or has one it must avoid; else None.

    Examples of wishes are `Include the word "sun"` and `Do not use the word "very"`.
    """
    folded = reply.replace("’", "'").casefold()
    for sentence in sentences:
        if re.search(
            r"\b(?:each|every|paragraph|title|at least one of|one of"
            r"|either|any of these|or)\b",
            sentence,
            re.IGNORECASE,
        ) and not _AVOID.search(sentence):
            continue
        avoided = _AVOID.search(sentence)
        if avoided:
            for word in _objects(sentence[avoided.end() :], avoided["k"]):
                is_letter = (
                    avoided["k"].casefold().startswith(("letter", "letra", "lettre", "buchstab"))
                )
                if _has_word(folded, word, is_letter=is_letter):
                    return f'the reply has "{word}"'
            continue
        for used in _USE.finditer(sentence):
            after = sentence[used.end() :]
            if re.search(
                r"(?:n't|n'|\b(?:not|avoid|never|without|no|sin|sans|ohne"
                r"|ne))\b",
                sentence[max(0, used.start() - 30) : used.start()],
                re.IGNORECASE,
            ):
                continue
            if re.search(
                r"\b(?:less than|fewer than|at most|moins de|menos de|como"
                r" máximo|au plus|weniger als)\b",
                after,
                re.IGNORECASE,
            ):
                continue
            for word in _objects(after, used["k"], is_quoted=True):
                if not _has_word(folded, word, is_letter=False, is_loose=True):
                    return f'the reply lacks "{word}"'
    return None


def _objects(text: str, kind: str, *, is_quoted: bool = False) -> list[str]:
    """Return the words after `the words`, at most 30: quoted ones, or one bare word.

    With `is_quoted`, or if `kind` (such as `words`) is a plural, a bare word does not count.
    """
    found: list[str] = []
    at = 0
    while len(found) < 30:
        quoted = _QUOTED.match(text, at)
        if not quoted:
            break
        found.append((quoted["a"] or quoted["b"]).strip())
        joined = re.compile(
            r"[\]\s,;]*(?:and|or|nor|und|oder|y|o|ni|et|ou|&)?[\s,]*(?:the"
            r" word |the phrase )?\[?"
        ).match(text, quoted.end())
        at = joined.end() if joined else quoted.end()
    if not found and text[:1] == "[":
        return _objects(text[1:], kind, is_quoted=is_quoted)
    if not found and not is_quoted and not kind.casefold().endswith("s"):
        bare = re.match(
            r"(?P<w>[^\W\d_][\w-]*)(?=\s*(?:[.,;!)]|$|in\b|anywhere|at all"
            r"|whatsoever|or\b|throughout|ever))",
            text,
        )
        if bare and bare["w"].casefold() not in (
            "in",
            "or",
            "and",
            "for",
            "that",
            "of",
            "itself",
            "limit",
            "count",
            "order",
            "from",
            "on",
        ):
            found.append(bare["w"])
    return [word for word in found if word]


def _has_word(folded: str, word: str, *, is_letter: bool, is_loose: bool = False) -> bool:
    """Return whether a text in lower case has a whole word.

    `is_loose` allows it inside another.
    """
    word = word.replace("’", "'").casefold()
    if is_letter and len(word) == 1:
        return word in folded
    if is_loose:
        return word.rstrip(".!?,") in folded
    return re.search(rf"(?<!\w){re.escape(word)}(?!\w)", folded) is not None


_TIMES: Final = re.compile(
    r"(?:the )?(?P<k>word|letter|phrase|term|keyword|palabra|letra|mot|lettre|terme)\s+[\"“«'‘`]?"
    r"(?P<w>[^\s\"”»'’`]{1,40})[\"”»'’`]?\s+(?:should |must |has to |needs to |debe(?:ría)? |doit "
    r"|devra |apparaisse |figure |aparezca )*(?:not )?(?:appear|occur|be (?:used|mentioned"
    r"|present)|show up|aparecer|aparezca|apparaître|figurer?|figure|être présente?)?\s*(?P<b>at"
    r" least|at most|less than|fewer than|more than|exactly|no more than|a minimum of|al menos"
    r"|como mínimo|menos de|exactamente|au moins|moins de|au minimum|minimum)?\s*(?P<n>\d{1,3}|one"
    r"|two|three|four|five|six|seven|eight|nine|ten|once|twice)\s*(?P<o>or more )?(?:times?|veces"
    r"|fois)?\b",
    re.IGNORECASE,
)
_TIMES2: Final = re.compile(
    r"(?:use|mention|include|includes?|incluye|utiliza|inclu\w+)\s+(?:the |la |le |el )?(?P<k>word"
    r"|letter|phrase|palabra|letra|mot|lettre)\s+[\"“«'‘`]?(?P<w>[^\s\"”»'’`]{1,40})[\"”»'’`]?\s+"
    r"(?:for )?(?P<b>at least|exactly|more than|less than|at most|al menos|au moins|au minimum"
    r"|moins de)\s*(?P<n>\d{1,3}|one|two|three|four|five|six|seven|eight|nine|ten|once|twice)\s*"
    r"(?P<o>or more )?(?:times?|veces|fois)?\b",
    re.IGNORECASE,
)


def frequency_fault(sentences: list[str], reply: str) -> str | None:
    """Describe that a word or letter occurs too often or too rarely, or return None.

    An example of a wish is `Use the word "sun" at least 3 times`.
    """
    folded = reply.casefold()
    for sentence in sentences:
        for found in (*_TIMES.finditer(sentence), *_TIMES2.finditer(sentence)):
            bound = (found["b"] or "").casefold()
            if not bound and not found["o"]:
                continue
            word = found["w"].casefold().strip(".,")
            number = counting.value_of(found["n"])
            is_letter = found["k"].casefold() in ("letter", "letra", "lettre")
            count = (
                folded.count(word)
                if is_letter and len(word) == 1
                else len(re.findall(rf"(?<!\w){re.escape(word)}(?!\w)", folded))
            )
            loose = folded.count(word)
            if bound in ("less than", "fewer than", "menos de", "moins de"):
                if count >= number:
                    return f'"{word}" occurs {count} times'
            elif bound in ("at most", "no more than"):
                if count > number:
                    return f'"{word}" occurs {count} times'
            elif bound in ("exactly", "exactamente"):
                if count != number and loose != number:
                    return f'"{word}" occurs {count} times, not {number}'
            elif max(count, loose) < number + (bound == "more than"):
                return f'"{word}" occurs {count} times, not {number}'
    return None


_MARKS: Final = (
    ("comma", r"commas?(?![- ]?separat)|kommas?|comas|virgules?", ","),
    (
        "exclamation mark",
        r"exclamation (?:marks?|points?)|ausrufezeichen|signos de"
        r" exclamación",
        "!",
    ),
    ("question mark", r"question marks?|fragezeichen", "?"),
    ("semicolon", r"semicolons?", ";"),
    ("hyphen", r"hyphens?", "-"),
    ("digit", r"digits?|numerals|ziffern", "0123456789"),
    ("full stop", r"periods(?= in| at|\.|$)|full stops", "."),
    ("quotation mark", r"quotation marks?|double quotes?", '"“”'),
    ("asterisk", r"asterisks?", "*"),
    ("emoji", r"emojis?|emoticons?", ""),
    ("parenthesis", r"parenthes[ei]s|brackets", "()"),
    ("accent", r"accents?|acentos|tildes|akzente", "áàâäéèêëíìîïóòôöúùûüçñ"),
)
_EMOJI: Final = re.compile("[\U0001f300-\U0001faff☀-➿\U0001f1e6-\U0001f1ff]")


def marks_fault(sentences: list[str], reply: str) -> str | None:
    """Describe a mark that the wishes forbid, as in `no commas`, or return None.

    Also quotation marks that must enclose the reply and do not.
    """
    for sentence in sentences:
        for name, pattern, marks in _MARKS:
            found = re.search(
                r"\b(?:no|without|avoid|not|don't|never|refrain from|free of"
                r"|ohne|keine?n?|sin|sans|évite[zr]?|pas d[e']|n'utilise[zr]?|evita|no (?:uses"
                rf"|utilices|debe)|ne (?:pas )?\w+ (?:pas|aucun\w*))\b[^.!?;:]{{0,35}}?\b"
                rf"(?:{pattern})\b",
                sentence,
                re.IGNORECASE,
            )
            if not found or re.search(
                r"\b(?:after|before|between|at the end|in the title|around"
                r"|except|more than|too many|excessive|but)\b",
                sentence,
                re.IGNORECASE,
            ):
                continue
            if name == "emoji":
                if _EMOJI.search(reply):
                    return "the reply has an emoji"
            elif any(mark in reply.casefold() for mark in marks):
                return f"the reply has a{'n' if name[0] in 'aeiou' else ''} {name}"
        if re.search(
            r"\b(?:wrap|wrapped|put|enclose|enclosed|inside|with"
            r"|surround\w*|encadr\w*|entour\w*|entre)\b[^.]{0,60}\b(?:double quotation marks"
            r"|double quotes|guillemets|comillas(?: dobles)?)\b",
            sentence,
            re.IGNORECASE,
        ) and re.search(
            r"\b(?:entire|whole|complete|your (?:response|answer|reply)"
            r"|the (?:response|answer|reply)|l'intégralité|toda|entière|tu respuesta|votre réponse"
            r"|ta réponse)\b",
            sentence,
            re.IGNORECASE,
        ):
            plain = reply.strip()
            if not re.fullmatch(r"[\"“«„].*[\"”»“]", plain, re.DOTALL):
                return "the reply is not wrapped in quotation marks"
    return None
