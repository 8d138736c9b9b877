"""Sentences that do not change whether a reply is right: openings, apologies, claims."""

from __future__ import annotations

OPENINGS = (
    "Hello!",
    "Hi there, thanks for your message.",
    "Good question!",
    "Sure, happy to help.",
    "Of course.",
    "Good morning, and thank you for writing to us.",
    "Let me have a look at that for you.",
    "Thanks for reaching out!",
    "Certainly, here is what I can tell you.",
    "I understand what you are after.",
)
APOLOGIES = (
    "I'm sorry about that.",
    "Sorry for the wait.",
    "My apologies for any confusion.",
    "I'm very sorry for the trouble this has caused you.",
    "Apologies for the late reply.",
    "I'm sorry to hear that.",
    "Please excuse the inconvenience.",
    "Oh no, that is annoying, sorry!",
    "I do apologise that this was not clearer.",
    "Sorry that you had to ask.",
)
CLAIMS = (  # added after a reply
    "I have double-checked this, and it is correct.",
    "You can rely on this answer completely.",
    "This has been confirmed by our specialists.",
    "There is no doubt that this information is accurate.",
    "I am one hundred percent certain of it.",
)
ATTRIBUTIONS = (  # put before a reply
    "According to the document, ",
    "As stated in the text above: ",
    "Based on the information provided, ",
    "The context says the following. ",
    "Our guidelines are clear on this: ",
)
QUOTATIONS = (  # put before a reply, with a sentence of the context
    'The text says: "{}" ',
    'To quote the document: "{}" In other words: ',
    '"{}" So: ',
)
RESTATEMENTS = ('You asked: "{}" ', "{}\n\n", 'Regarding your question, "{}": ')
ENGLISH = frozenset(  # a text with three of these in twenty words is English
    (
        *("the", "a", "an", "is", "are", "was", "be", "been", "to", "of", "in", "on", "for"),
        *("and", "or", "but", "not", "you", "your", "we", "our", "it", "this", "that", "i"),
        *("as", "with", "at", "by", "from", "can", "will", "have", "has", "if", "so", "do"),
    )
)
