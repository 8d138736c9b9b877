"""Word lists for the marks: kinds of arguments, and words with the same meaning in a call."""

from __future__ import annotations

from calibrator.readers.calls.reading.values import word_set

FREE = word_set(
    "title subject reason description note notes message body text content summary comment query"
    " topic keyword keywords question prompt memo detail details headline caption instruction"
    " instructions purpose remark remarks search q html markdown agenda greeting answer"
    " explanation code script command sql statement label labels tag tags pattern regex filter"
    " expression formula thought plan feedback bio slogan template"
)
"""Last words of the names of arguments that the model words by itself."""
LOOSE = word_set(
    "status state type category format unit units sort order mode level priority kind language lang"
    " locale currency method encoding timezone tz frequency interval severity granularity metric"
    " direction scope visibility sorting period basis urgency style tone fields field columns"
    " column"
    " version model engine region operator operation action code country symbol ticker airport"
    " quality"
    " resolution theme aspect ratio"
)
"""Last words of the names of arguments with a fixed wording that users seldom know."""
CONTROL = word_set(
    "limit page offset per_page top k results timeout retries retry depth seed"
    " temperature cursor skip index batch precision decimals coordinates coords lat latitude lon"
    " lng long longitude"
    " timestamp epoch width height zoom radius dpi rows lines tail port"
)
PEOPLE = word_set("guests people party adults passengers attendees persons seats travelers"
                   " travellers travelers participants covers pax travellers rooms tickets quantity"
                   " qty count pieces copies units number")  # fmt: skip
OF_THE_WORLD = word_set("timezone tz country region state language lang locale currency category")
"""Last words of the names of arguments that follow from a place or a thing that the user named."""
ALIASES = {
    "usd": "$ dollar dollars",
    "eur": "€ euro euros",
    "gbp": "£ pound pounds",
    "jpy": "¥ yen",
}

_ALIKE = (
    "read reader view viewer look see readonly reading viewing",
    "write writer edit editor change modify editing",
    "owner admin administrator manage full",
    "high urgent critical asap important immediately severe blocker emergency",
    "low minor whenever unimportant",
    "one-way oneway single", "round return roundtrip",
    "express fast quick fastest overnight priority", "standard normal regular",
    "private confidential secret", "public everyone everybody open",
    "never once", "daily day", "weekly week", "monthly month", "yearly annual annually year",
    "delete remove", "cancel stop end terminate",
    "done completed complete closed resolved solved finished fixed close", "pause suspend",
    "credit refund", "debit charge",
    "male man", "female woman", "asc ascending", "desc descending",
    "production prod live", "staging stage", "development dev",
    "accept yes agree confirm join attend", "decline refuse can't cannot won't unable",
    "closed shut blocked",
    "inbound incoming arrive arrival enter entering",
    "outbound outgoing leave depart departure sail",
    "card creditcard", "invoice bill", "cash", "window", "aisle", "vegetarian veggie", "vegan",
)  # fmt: skip
KIN: dict[str, set[str]] = {}
for _line in _ALIKE:
    for _each in _line.split():
        KIN.setdefault(_each, set()).update(_line.split())
