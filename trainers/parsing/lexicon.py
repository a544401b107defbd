"""The words of the treebank's grammar, as tables of text.

A word decides the structure: which constituent a prepositional phrase belongs
to follows from the verb, its object and the noun after the preposition. See
`grammar.py`.
"""

from typing import NamedTuple

from trainers.phrasebook.morphology import (
    english_participle,
    english_past,
    english_s_form,
)

# Class of nouns -> each noun, with its plural if that is irregular.
NOUN_TABLE = {
    "person": """
        man men; woman women; child children; teacher; doctor; farmer; painter;
        sailor; tourist; guard; student; merchant
        """,
    "relation": "friend; brother; neighbor; servant",
    "animal": "dog; cat; horse; parrot; goat; fox",
    "dish": "pizza; soup; salad; pie; cake; stew",
    "text": "book; letter; poem; story; novel; report",
    "building": "house; church; castle; museum; school; barn",
    "opening": "door; box; chest; cupboard; safe",
    "place": "garden; park; square; forest; market; yard",
    "town": "village; city; island; valley",
    "picture": "painting; photograph; map; drawing",
    "subject": "war; journey; king; storm; sea; wedding",
    "clothes": "hat; coat; beard; scarf scarves; uniform",
    "optics": "telescope; camera; microscope",
    "stick": "stick; broom; shovel; umbrella",
    "cutlery": "fork; spoon; knife knives",
    "tool": "key; hammer; crowbar",
    "pen": "pen; pencil; brush",
    "fur": "tail; collar; bell",
    "ingredient": "mushroom; onion; olive; raisin",
    "page": "cover; index; stamp",
    "roof": "roof; tower; chimney; balcony",
    "handle": "handle; lock; lid",
    "fountain": "fountain; pond; bench; statue",
    "frame": "frame; border",
}
# Class of nouns -> their possessions: the nouns that `with` adds to them.
# People also have the things that the verb does not use.
PARTS = {
    "person": "clothes",
    "relation": "clothes",
    "animal": "fur",
    "dish": "ingredient",
    "text": "page",
    "building": "roof",
    "opening": "handle",
    "place": "fountain",
    "town": "fountain",
    "picture": "frame",
}
CARRIED = ("optics", "stick", "cutlery", "tool", "pen")

ADJECTIVE_TABLE = {
    "old young tall friendly famous tired": "person relation animal",
    "hungry clever": "person animal",
    "big small new": (
        "animal dish building opening place picture clothes stick roof handle"
        " fountain frame"
    ),
    "old red heavy": "text opening clothes stick cutlery tool pen page",
    "fresh hot": "dish ingredient",
    "long boring strange": "text subject",
    "beautiful quiet": "building place town picture fountain",
    "little": "relation fur ingredient pen optics town",
}

NAMES = "Anna Peter Maria Thomas Clara Jacob Helen Oscar".split()
PRONOUNS = ("he him", "she her", "they them", "we us", "I me")
POSSESSIVES = "his her their my our".split()
TITLES = "Captain Doctor Mrs. Professor".split()

# Class of verbs -> each verb, with its past and its past participle if they are
# irregular; the participle is left out if it equals the past.
VERB_TABLE = {
    "perceive": "see saw seen; watch; observe; notice; spot",
    "strike": "hit hit; chase; push; frighten; threaten",
    "eat": "eat ate eaten; taste; serve; finish",
    "open": "open; break broke broken; close; damage",
    "write": "write wrote written; sign; copy; correct",
    "draw": "draw drew drawn; sketch; paint",
    "know": "know knew known; meet met; like; admire; visit; remember",
    "buy": "buy bought; borrow; steal stole stolen; receive",
    "hold": "carry; find found; lose lost; sell sold",
    "particle": """
        pick; put put; throw threw thrown; give gave given; take took taken
        """,
    "give": "give gave given; show showed shown; send sent; offer",
    "place": "put put; leave left; hide hid hidden",
    "rest": "sleep slept; laugh; wait; work; sing sang sung",
    "go": "walk; run ran run; travel; return",
    "look": "look; point; wave",
    "say": "say said; think thought; believe; hope",
    "tell": "tell told; warn; remind",
    "want": "want; try; decide; promise",
}
# Particles of the verbs of "particle", in their order there.
PARTICLES = ("up", "down", "away", "back", "out")


class Frame(NamedTuple):
    """Objects of a class of transitive verbs.

    Attributes:
        objects: Classes of nouns.
        instruments: Class of nouns that `with` adds to the verb; "" for none.
        is_action: Whether `in` and a place belong to the verb, not its object.
        has_source: Whether `from` belongs to the verb, not its object.
    """

    objects: tuple[str, ...]
    instruments: str = ""
    is_action: bool = True
    has_source: bool = False


FRAMES = {
    "perceive": Frame(("person", "animal", "building"), "optics", False),
    "strike": Frame(("person", "animal"), "stick"),
    "eat": Frame(("dish",), "cutlery"),
    "open": Frame(("opening",), "tool"),
    "write": Frame(("text",), "pen"),
    "draw": Frame(("picture", "person", "building"), "pen"),
    "know": Frame(("person", "relation", "animal", "building"), "", False),
    "buy": Frame(("text", "picture", "dish", "clothes"), "", True, True),
    "hold": Frame(("text", "picture", "stick", "tool", "clothes")),
}
MODALS = "would could should must will".split()
MANNERS = "slowly quietly happily often suddenly carefully".split()
TIMES = "yesterday today".split()
PARTS_OF_DAY = "morning evening afternoon night".split()
DEGREES = "very quite rather".split()
STATES = "happy tired angry hungry proud afraid".split()
REASONS = "because although when while before after if".split()
NUMBERS = "two three four five twenty".split()


def _read_noun(singular: str, plural: str = "") -> dict[str, str]:
    """The forms of a noun, by their tags."""
    return {"NN": singular, "NNS": plural or english_s_form(singular)}


def _read_verb(
    base: str, past: str = "", participle: str = ""
) -> dict[str, str]:
    """The forms of a verb, by their tags."""
    past = past or english_past(base)
    gerund = english_participle(base)
    return {"VB": base, "VBD": past, "VBN": participle or past, "VBG": gerund}


NOUNS = {
    name: [_read_noun(*entry.split()) for entry in table.split(";")]
    for name, table in NOUN_TABLE.items()
}
VERBS = {
    name: [_read_verb(*entry.split()) for entry in table.split(";")]
    for name, table in VERB_TABLE.items()
}
ADJECTIVES = {
    name: tuple(
        dict.fromkeys(
            adjective
            for adjectives, classes in ADJECTIVE_TABLE.items()
            if name in classes.split()
            for adjective in adjectives.split()
        )
    )
    for name in NOUNS
}
