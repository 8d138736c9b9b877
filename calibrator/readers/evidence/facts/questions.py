"""The recognition of short factual questions about the world, for which a reply has no evidence."""

from __future__ import annotations

import re
from typing import Final

from calibrator.readers.evidence.conversation import Conversation
from calibrator.text.guarded import compile_guarded
from calibrator.text.looking_for import letters_in

MAX_QUESTION = 400  # characters; a longer one gives a story or a document
MAX_RULES = 1_200  # characters of a system message; a longer one may contain the answer
MAX_SHARE = 0.34  # largest share of the question's words in the system message
MAX_SENTENCES = 2

# Words that begin a question for a name, a place, a time or a number. A few other words may come
# before them ("For which team ..").
_WHO: Final = (
    "who whom whose when where which kdo koho komu kdy kde který která které kterou kterého kterém"
    " kteří jaký jaká jaké jakou jakého kolik odkud quién quiénes cuándo dónde cuál cuáles cuánto"
    " cuánta cuántos cuántas qui quand où quel quelle quels quelles combien lequel laquelle wer wen"
    " wem wessen wann wo welche welcher welches welchen welchem wieviel chi quando dove quale quali"
    " quanto quanta quanti quante quem qual quais onde wie welk hoeveel waar wanneer"
)
_WHO_SET: Final = frozenset(_WHO.split())
_NUMBER: Final = compile_guarded(
    r"\bhow (?:many|much|old|tall|high|deep|long|far|big|large|wide|heavy|fast|often|hot|cold"
    r"|thick)"
    r"\b|\b(?:wie (?:viele?|hoch|alt|lang|groß|weit|tief|schwer|heißt|hieß)|hoe (?:oud|hoog|lang"
    r"|groot|ver|heet)|v (?:jakém|kterém|jaké|které)|jak (?:se|dlouh|vysok|velk|star)"
    r"|à quelle|de quelle|dans quel|en qué|de qué|em que|in che|in quale|a che)",
    re.IGNORECASE,
)
_WHAT: Final = compile_guarded(
    r"\bwhat(?:['\u2019]s| is| was| are| were)? (?:the |a |an )?(?!best\b|difference|point of"
    r"|meaning"
    r"|purpose|importance|role|impact|effect|advantage|disadvantage|benefit|reason|cause|way"
    r"|relationship|similarit|pros|main (?:idea|point|theme)|theme|process|most effective|key\b"
    r"|your|my|our|i\b|you\b|we\b|it\b|this\b|that\b|these\b|those\b|some\b|should|would|could|if\b"
    r"|can\b|do you|happens|happen\b|makes|to\b|about)"
    r"[\w' -]{2,60}?\b(?:of|in|for|did|does|do|was|were|is|are|has|had|called|known|named|used|won"
    r"|by|from|to|that|on|with|between|at|comes|came|stands|took|name)\b",
    re.IGNORECASE,
)
_CZECH: Final = compile_guarded(
    r"\b(?:kter(?:ý|á|é|ou|ých|ým|ými|ém|ého)|jak(?:ý|á|é|ou|ým|ém|ého|\w+ (?:je|byl)))\b",
    re.IGNORECASE,
)
_NAME_IT: Final = compile_guarded(
    r"^\W*(?:name the|name of|identify the (?:capital|author|year|city|country)|in (?:what|which)"
    r"|on (?:what|which)|at (?:what|which)|from (?:what|which)|what (?:year|country|city|colou?r"
    r"|language|river|animal|planet|element|state|company|day|date|month|team|band|film|movie|book"
    r"|king|queen|type|kind|name|nationality|is the (?:name|capital|currency|chemical))"
    r"|(?:what|who)['\u2019]s the (?:name|capital|currency|author)|the (?:capital|currency) of)\b",
    re.IGNORECASE,
)

_IS_IT: Final = compile_guarded(
    r"^\W*(?:is|are|was|were|did|does|do|has|have|had|can|could|will|would) (?:the |a |an )?"
    r"(?!i\b|you\b|we\b|it\b|this\b|that\b|these\b|those\b|there\b|my\b|your\b|our\b|she\b|he\b"
    r"|they\b)[^?]{3,140}\?\W*$",
    re.IGNORECASE,
)
_CHINESE: Final = compile_guarded(
    "(?:谁|什么时候|何时|哪(?:一|个|位|年|里|国|座|些|种|部)|多少|几(?:个|年|岁|次|位)"
    "|(?:首都|作者|名字|名称|货币)(?:是|叫)什么|誰|いつ|どこ|何年|何人|누구|언제|어디|кто|когда|где|сколько|какой|какая)"
)
# Words of requests for something other than a fact.
_OTHER: Final = compile_guarded(
    r"\b(?:how (?:do|can|should|could|would|might|did you|to|are you|does (?:this|it|one))|why"
    r"|what if|what do you|explain|describe|discuss|compare|contrast|suggest|recommend|advise|tips"
    r"|ideas|write an?|compose an?|create|generate|design an?|draft|rewrite|rephrase|paraphrase"
    r"|translate|summari[sz]e|classify|categori[sz]e|calculate|compute|solve|simplify|evaluate"
    r"|convert|derive|prove that|implement|python|javascript|sql|json|brainstorm|imagine|pretend"
    r"|assume|suppose|hypothetical|alternate (?:history|reality)|opinion|best way|pros and cons"
    r"|steps|riddle|am i|(?:the|this|given|provided) (?:passage|context|paragraph|text|article"
    r"|document|statement|table|sentence)|the following|(?:listed|given|shown|from the) (?:options?"
    r"|choices|above|below)|which one is|sound\?|conclude|possible that|were never|had never"
    r"|without|feasible|warum|wieso|weshalb|pourquoi|por qué|perché|waarom|proč)\b"
    r"|为什么|怎么|如何|(?:帮我|请|来|要)写|写一|翻译|解释|总结|选出|下列|以下",
    re.IGNORECASE,
)
_ABOUT_US: Final = compile_guarded(
    r"\bi['\u2019]m\b|\bi (?:am|have|do|can|was|want|need|should|would|think|get|see|had|will|could"
    r"|did|know|use|feel|like|find|go|make|buy|eat|take|pay|must|just)\b|\b(?:do|did|can|should|am"
    r"|could|would|may|must|will|have|if|that|when) i\b|\b(?:my|mine|our|ours|your|yours)\b"
    r"|\b(?:do|are|can|could|would|will|have|did|should|if) (?:you|we)\b|\byou (?:think|like|want"
    r"|need|feel|know|see|have|can|could|tell)\b|\b(?:this|these) (?!year|is\b|day|season"
    r"|is the\b)",
    re.IGNORECASE,
)
_WITHOUT_NAME: Final = compile_guarded(
    r"^\W*(?:who|what|when|where|which|how \w+)\b(?: (?:is|was|are|were|did|does|do|will|has|had)"
    r"\b)?(?: (?:it|he|she|they|that|them|him|her|one|there))\b(?: \w+){0,2}\W*$",
    re.IGNORECASE,
)
_OPTION: Final = compile_guarded(r"(?:^|[\n\s])\(?[A-Da-d][).:]\s|\(i+\)")
_CODE: Final = compile_guarded(r"[{};=<>\\$]|```|->|\bdef \w")
_ARITHMETIC: Final = compile_guarded(
    r"\d\s+-\s+\d|\d\s*(?:[+*/^\u00d7\u00f7]|times|plus|minus|divided by|percent of|% of"
    r"|squared)\s*\d"
    r"|\d\s*% of|\b(?:square root|sum of \d|product of \d|factorial)",
    re.IGNORECASE,
)
_WORD_PROBLEM: Final = compile_guarded(
    r"\b(?:altogether|in total|combined|left over|(?:are|is|were|was|does \w+ have) left|remain\w*"
    r"|twice|thrice|half (?:of|as|that)|(?:two|three|four|five) times|how many more|percent\w*"
    r"|probability|integers?|whole numbers?|how many (?:different )?ways|perfect squares?|prime"
    r"|divisible|digits|triangles?|perimeter|vertices|positive|multiples? of|ratio|average"
    r"|total)\b",
    re.IGNORECASE,
)
_MATHEMATICS: Final = compile_guarded(
    r"\b(?:integers?|whole numbers?|how many (?:different )?ways|perfect squares?|prime factors?"
    r"|divisible by|digits|right triangle|perimeter of|vertices|probability)\b",
    re.IGNORECASE,
)
_CHANGE: Final = compile_guarded(
    r"\bpercentage change|\bdifference (?:in|between)|\baverage value|\bchange in\b"
    r"|\bincrease in\b",
    re.IGNORECASE,
)
_UNITS: Final = compile_guarded(
    r"\bhow many [\w ]{2,25} (?:are|is|in|make)(?: there)?(?: in)? (?:\d|two|three|four|five|six"
    r"|half|an? (?:hour|minute|day|week|kilo\w*|meter|metre|mile|foot|inch|yard|pound|gallon"
    r"|lit(?:er|re)|dozen|byte))"
    r"|\bhow many (?:days|weeks|months|hours|minutes|seconds) (?:between|until|since|before|after)"
    r"|\bwhat (?:day|date) (?:is|was|will)\b.{0,20}\b(?:today|tomorrow|\d{4}|days?)"
    r"|\bwhat time\b|\bweather\b",
    re.IGNORECASE,
)
_DOCUMENT: Final = compile_guarded(
    r"\||\b(?:context|passage|document|text|table|article|notes|policy|information|facts|excerpt"
    r"|paragraph|rules?|report|data)\b",
    re.IGNORECASE,
)
_PARTS: Final = compile_guarded(r"(?<=[^\d\W]{3}[.!?])\s+(?=\S)|\n+")
_MAY_PART: Final = re.compile(r"[.!?]\s|\n")  # is in every text that `_PARTS` splits
_FIGURE: Final = compile_guarded(r"(?<![\w.])\d+(?:[.,]\d+)?(?![\w])")


def needs_facts(conversation: Conversation) -> bool:
    """Return whether the request is a short question that only knowledge of the world answers.

    An example is `Who wrote Hamlet?`. False if a document, a long system message or tool results
    are given, and for sums, code, advice, opinions and tasks.
    """
    text = conversation.request.strip()
    if not 8 <= len(text) <= MAX_QUESTION and not (_CHINESE.search(text[:MAX_QUESTION])):
        return False
    if len(text) > MAX_QUESTION or conversation.results or _is_in_rules(conversation):
        return False
    if _CODE.search(text) or _OTHER.search(text) or _OPTION.search(text):
        return False
    if _ARITHMETIC.search(text) or _UNITS.search(text) or _ABOUT_US.search(text):
        return False
    parts = [text]
    if _MAY_PART.search(text):
        parts = [part for part in _PARTS.split(text) if part.strip()]
    if len(parts) > MAX_SENTENCES or _WITHOUT_NAME.match(text):
        return False
    figures = len(_FIGURE.findall(text))
    if figures >= 2 and (len(parts) > 1 or _WORD_PROBLEM.search(text)):
        return False
    if _CHANGE.search(text) or (figures and _MATHEMATICS.search(text)):
        return False
    return _asks_for_fact(text, parts[-1])


def _is_in_rules(conversation: Conversation) -> bool:
    """Return whether the system message may hold the answer: it is long, or shares many words."""
    rules = conversation.rules
    if not rules.strip():
        return False
    if _DOCUMENT.search(rules) or rules.count("\n") >= 6:
        return True
    wanted = {word for word in letters_in(conversation.request.lower()) if len(word) > 3}
    shared = wanted & set(letters_in(rules[:MAX_RULES].lower()))
    return len(rules) > MAX_RULES or len(shared) > MAX_SHARE * len(wanted)


def _asks_for_fact(text: str, last: str) -> bool:
    """Return whether the last sentence asks for a name, place, time, number, or yes or no.

    `text` is the whole request and `last` its last sentence, such as `Who wrote it?`.
    """
    if _CHINESE.search(text) and len(text) <= 80:
        return True
    words = letters_in(last.lower())
    is_czech = _CZECH.search(last) is not None
    is_question = (
        is_czech or text.endswith(("?", "\uff1f")) or bool(_WHO_SET.intersection(words[:3]))
    )
    if _NAME_IT.match(last):
        return True
    if not is_question:
        return bool(_NUMBER.match(last) or (words[:1] == ["what"] and _WHAT.search(last)))
    if _IS_IT.match(last):
        return True
    return is_czech or bool(
        _WHO_SET.intersection(words) or _NUMBER.search(last) or _WHAT.search(last)
    )
