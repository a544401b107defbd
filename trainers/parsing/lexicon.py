"""The words of the treebank's grammar, as tables of text.

A word decides the structure: which constituent a prepositional phrase belongs
to follows from the verb, its object and the noun after the preposition. See
`grammar.py`.
"""

from typing import NamedTuple

# Class of nouns -> singular and plural.
NOUN_TABLE = {
    "person": """
        man men; woman women; child children; teacher teachers; doctor doctors;
        farmer farmers; painter painters; sailor sailors; tourist tourists;
        guard guards; student students; merchant merchants
        """,
    "relation": """
        friend friends; brother brothers; neighbor neighbors; servant servants
        """,
    "animal": """
        dog dogs; cat cats; horse horses; parrot parrots; goat goats; fox foxes
        """,
    "dish": """
        pizza pizzas; soup soups; salad salads; pie pies; cake cakes;
        stew stews
        """,
    "text": """
        book books; letter letters; poem poems; story stories; novel novels;
        report reports
        """,
    "building": """
        house houses; church churches; castle castles; museum museums;
        school schools; barn barns
        """,
    "opening": """
        door doors; box boxes; chest chests; cupboard cupboards; safe safes
        """,
    "place": """
        garden gardens; park parks; square squares; forest forests;
        market markets; yard yards
        """,
    "town": """
        village villages; city cities; island islands; valley valleys
        """,
    "picture": """
        painting paintings; photograph photographs; map maps; drawing drawings
        """,
    "subject": """
        war wars; journey journeys; king kings; storm storms; sea seas;
        wedding weddings
        """,
    "clothes": """
        hat hats; coat coats; beard beards; scarf scarves; uniform uniforms
        """,
    "optics": """
        telescope telescopes; camera cameras; microscope microscopes
        """,
    "stick": """
        stick sticks; broom brooms; shovel shovels; umbrella umbrellas
        """,
    "cutlery": """
        fork forks; spoon spoons; knife knives
        """,
    "tool": """
        key keys; hammer hammers; crowbar crowbars
        """,
    "pen": """
        pen pens; pencil pencils; brush brushes
        """,
    "fur": """
        tail tails; collar collars; bell bells
        """,
    "ingredient": """
        mushroom mushrooms; onion onions; olive olives; raisin raisins
        """,
    "page": """
        cover covers; index indexes; stamp stamps
        """,
    "roof": """
        roof roofs; tower towers; chimney chimneys; balcony balconies
        """,
    "handle": """
        handle handles; lock locks; lid lids
        """,
    "fountain": """
        fountain fountains; pond ponds; bench benches; statue statues
        """,
    "frame": """
        frame frames; border borders
        """,
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

# Verbs: base, past, past participle, gerund.
VERB_TABLE = {
    "perceive": """
        see saw seen seeing; watch watched watched watching;
        observe observed observed observing; notice noticed noticed noticing;
        spot spotted spotted spotting
        """,
    "strike": """
        hit hit hit hitting; chase chased chased chasing;
        push pushed pushed pushing; frighten frightened frightened frightening;
        threaten threatened threatened threatening
        """,
    "eat": """
        eat ate eaten eating; taste tasted tasted tasting;
        serve served served serving; finish finished finished finishing
        """,
    "open": """
        open opened opened opening; break broke broken breaking;
        close closed closed closing; damage damaged damaged damaging
        """,
    "write": """
        write wrote written writing; sign signed signed signing;
        copy copied copied copying; correct corrected corrected correcting
        """,
    "draw": """
        draw drew drawn drawing; sketch sketched sketched sketching;
        paint painted painted painting
        """,
    "know": """
        know knew known knowing; meet met met meeting; like liked liked liking;
        admire admired admired admiring; visit visited visited visiting;
        remember remembered remembered remembering
        """,
    "buy": """
        buy bought bought buying; borrow borrowed borrowed borrowing;
        steal stole stolen stealing; receive received received receiving
        """,
    "hold": """
        carry carried carried carrying; find found found finding;
        lose lost lost losing; sell sold sold selling
        """,
    "particle": """
        pick picked picked picking; put put put putting;
        throw threw thrown throwing; give gave given giving;
        take took taken taking
        """,
    "give": """
        give gave given giving; show showed shown showing;
        send sent sent sending; offer offered offered offering
        """,
    "place": """
        put put put putting; leave left left leaving; hide hid hidden hiding
        """,
    "rest": """
        sleep slept slept sleeping; laugh laughed laughed laughing;
        wait waited waited waiting; work worked worked working;
        sing sang sung singing
        """,
    "go": """
        walk walked walked walking; run ran run running;
        travel traveled traveled traveling; return returned returned returning
        """,
    "look": """
        look looked looked looking; point pointed pointed pointing;
        wave waved waved waving
        """,
    "say": """
        say said said saying; think thought thought thinking;
        believe believed believed believing; hope hoped hoped hoping
        """,
    "tell": """
        tell told told telling; warn warned warned warning;
        remind reminded reminded reminding
        """,
    "want": """
        want wanted wanted wanting; try tried tried trying;
        decide decided decided deciding; promise promised promised promising
        """,
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


def _rows(table: str) -> list[list[str]]:
    """The cells of the entries of a table."""
    return [entry.split() for entry in table.split(";")]


NOUNS = {name: _rows(table) for name, table in NOUN_TABLE.items()}
VERBS = {name: _rows(table) for name, table in VERB_TABLE.items()}
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
