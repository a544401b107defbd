"""A grammar of English that writes trees, in the style of the Penn Treebank.

The attachment of a phrase follows from the words, never from their tags alone:

    saw the man with a telescope     with a telescope: of the verb
    met the man with a telescope     of the noun: nobody meets with a telescope
    saw the man with a hat           of the noun: nobody sees with a hat
    ate soup in the garden           in the garden: of the verb
    saw the man in the garden        of the noun
    bought a book from the merchant  from the merchant: of the verb
    knew the merchant from the city  of the noun
    the friend of the cat that ...   that: of the cat
    the friend of the cat who ...    who: of the friend
    picked up the box                up: a particle
    looked up the chimney            up: a preposition
    saw the man and the dog          noun phrases are coordinated
    saw the man and the dog barked   clauses are coordinated

Every sentence has one structure: a prepositional phrase that could belong to
the verb is never put on its object, and nothing follows a clause that could
belong to it.
"""

import random
from typing import NamedTuple

from trainers.parsing.lexicon import (
    ADJECTIVES,
    CARRIED,
    DEGREES,
    FRAMES,
    MANNERS,
    MODALS,
    NAMES,
    NOUNS,
    NUMBERS,
    PARTICLES,
    PARTS,
    PARTS_OF_DAY,
    POSSESSIVES,
    PRONOUNS,
    REASONS,
    STATES,
    TIMES,
    TITLES,
    VERBS,
    Frame,
)
from trainers.parsing.trees import TOP, Leaf, Node

PEOPLE = ("person", "relation")
DEPTH = 2  # clauses inside the main clause, at most, one in the other
TELLING = 0.2  # of the verbs with an object: their complement decides the tree


class Verb(NamedTuple):
    """The forms of a verb, with their tags in `leaf`."""

    base: str
    past: str
    participle: str
    gerund: str

    def leaf(self, tag: str) -> Leaf:
        """The form that has a tag."""
        index = {"VB": 0, "VBD": 1, "VBN": 2, "VBG": 3}[tag]
        return Leaf(tag, self[index])


def _node(label: str, *children: Node | Leaf | None) -> Node:
    """A constituent of the children that there are."""
    return Node(label, tuple(child for child in children if child))


def _preposition(word: str, phrase: Node) -> Node:
    """A prepositional phrase."""
    return _node("PP", Leaf("TO" if word == "to" else "IN", word), phrase)


class TreeSampler:
    """Makes random sentences with their trees.

    Args:
        generator: A `random.Random`.
    """

    def __init__(self, generator: random.Random):
        self._random = generator.random

    def chance(self, probability: float) -> bool:
        """True with the given probability."""
        return self._random() < probability

    def pick(self, choices):
        """One of the choices, evenly."""
        return choices[int(self._random() * len(choices))]

    def verb(self, kind: str) -> Verb:
        """A verb of a class."""
        return Verb(*self.pick(VERBS[kind]))

    # Noun phrases

    def base(self, kind: str, determiner: str = "") -> Node:
        """A noun with its modifiers: the very old man."""
        singular, plural = self.pick(NOUNS[kind])
        is_plural = not determiner and self.chance(0.2)
        noun = Leaf("NNS", plural) if is_plural else Leaf("NN", singular)
        adjective = degree = None
        if ADJECTIVES[kind] and self.chance(0.3):
            adjective = Leaf("JJ", self.pick(ADJECTIVES[kind]))
            if self.chance(0.2):
                degree = Leaf("RB", self.pick(DEGREES))
        modifier: Node | Leaf | None = adjective
        if adjective and degree:
            modifier = _node("ADJP", degree, adjective)
        first = (degree or adjective or noun).word
        return _node(
            "NP", self._determiner(determiner, is_plural, first), modifier, noun
        )

    def _determiner(
        self, given: str, is_plural: bool, first: str
    ) -> Node | Leaf:
        """A determiner, a number, or whose it is."""
        article = "an" if first[0] in "aeiou" else "a"
        if given:
            return Leaf("DT", article if given == "a" else given)
        draw = self._random()
        if draw < 0.5:
            return Leaf("DT", "the")
        if draw < 0.6:
            return Leaf("PRP$", self.pick(POSSESSIVES))
        if draw < 0.66:
            name = Leaf("NNP", self.pick(NAMES))
            return _node("NP", name, Leaf("POS", "'s"))
        if is_plural:
            if draw < 0.8:
                return Leaf("CD", self.pick(NUMBERS))
            return Leaf("DT", self.pick(("these", "some")))
        return Leaf("DT", article if draw < 0.95 else "this")

    def name(self) -> Node:
        """A name; with a title, or with an apposition."""
        name = Leaf("NNP", self.pick(NAMES))
        if self.chance(0.15):
            return _node("NP", Leaf("NNP", self.pick(TITLES)), name)
        if self.chance(0.1):
            comma = Leaf(",", ",")
            return _node(
                "NP",
                _node("NP", name),
                comma,
                self.base("person", "the"),
                comma,
            )
        return _node("NP", name)

    def pronoun(self, is_subject: bool) -> Node:
        """A pronoun."""
        subject, other = self.pick(PRONOUNS).split()
        return _node("NP", Leaf("PRP", subject if is_subject else other))

    def modified(
        self, kind: str, frame: Frame | None = None, num_phrases: int = 1
    ) -> Node:
        """A noun with prepositional phrases that cannot be the verb's.

        Args:
            kind: Class of the noun.
            frame: Of the verb that the noun is the object of, or None.
            num_phrases: How many phrases, at most.
        """
        core = self.base(kind)
        phrases: list[Node] = []
        for _ in range(num_phrases):
            phrase = self._noun_phrase_modifier(kind, frame)
            words = [phrase.children[0]] if phrase else []
            if phrase and words[0] not in [p.children[0] for p in phrases]:
                phrases.append(phrase)
        return _node("NP", core, *phrases) if phrases else core

    def _noun_phrase_modifier(
        self, kind: str, frame: Frame | None
    ) -> Node | None:
        """A prepositional phrase that belongs to a noun, or None."""
        choices = []
        if kind in PARTS:
            choices += ["with", "with"]
        if kind == "relation":
            choices += ["of"]
        if kind in ("text", "picture"):
            choices += ["about" if kind == "text" else "of"]
        if kind in (*PEOPLE, "animal", "building") and not (
            frame and frame.is_action
        ):
            choices += ["in"]
        if kind in PEOPLE and not (frame and frame.has_source):
            choices += ["from"]
        if not choices:
            return None
        word = self.pick(choices)
        if word == "with":
            return _preposition("with", self._part(kind, frame))
        if word == "about":
            return _preposition("about", self.base("subject"))
        if word == "of":
            others = ("person", "animal") if kind == "relation" else PEOPLE
            return _preposition("of", self.base(self.pick(others)))
        if word == "in":
            return _preposition("in", self.place())
        return _preposition("from", self.base("town", "the"))

    def _part(self, kind: str, frame: Frame | None) -> Node:
        """Possessions of a noun of a class that the verb does not use."""
        if kind in PEOPLE and self.chance(0.6):
            used = frame.instruments if frame else ""
            carried = [name for name in CARRIED if name != used]
            return self.base(self.pick(carried), self.pick(("a", "the", "")))
        return self.base(PARTS[kind], self.pick(("a", "the", "")))

    def place(self) -> Node:
        """A place, with a part of it."""
        place = self.base("place", "the")
        if self.chance(0.3):
            part = self.base("fountain", self.pick(("a", "the")))
            return _node("NP", place, _preposition("with", part))
        return place

    def nominal(
        self, kinds: tuple[str, ...], frame: Frame | None, depth: int
    ) -> Node:
        """A noun phrase of any form.

        Args:
            kinds: Classes of nouns.
            frame: Of the verb that the phrase is the object of; None of a
                subject.
            depth: Clauses that it may have, one in the other.
        """
        kind, draw = self.pick(kinds), self._random()
        if "person" in kinds and draw < 0.25:
            if draw < 0.12:
                return self.pronoun(frame is None)
            return self.name()
        if draw < 0.33:
            return self._coordinated(kinds, frame)
        if draw < 0.45 and depth > 0:
            return self._relative(kind, depth)
        if draw < 0.7:
            number = 2 if self.chance(0.25) else 1
            return self.modified(kind, frame, number)
        return self.base(kind)

    def _coordinated(self, kinds: tuple[str, ...], frame: Frame | None) -> Node:
        """Two or three noun phrases: the last may have a modifier."""
        kind = self.pick(kinds)
        last = self.base(kind)
        if self.chance(0.3):
            last = self.modified(kind, frame)
        first = self.base(self.pick(kinds))
        conjunction = Leaf("CC", self.pick(("and", "or")))
        comma = middle = None
        if self.chance(0.2):
            comma = Leaf(",", ",")
            middle = self.base(self.pick(kinds))
        return _node("NP", first, comma, middle, conjunction, last)

    def _relative(self, kind: str, depth: int) -> Node:
        """A noun with a relative clause, of itself or of its `of` phrase."""
        if kind == "relation" and self.chance(0.7):
            return self._relative_after_of(depth)
        core = self.base(kind)
        clause = self._relative_clause(core, kind, depth)
        return _node("NP", core, clause)

    def _relative_after_of(self, depth: int) -> Node:
        """The friend of the cat that, or who: the clause decides."""
        friend, other = self.base("relation"), self.base("animal")
        if self.chance(0.5):
            clause = self._relative_clause(other, "animal", depth)
            owner = _node("NP", other, clause)
            return _node("NP", friend, _preposition("of", owner))
        clause = self._relative_clause(friend, "relation", depth)
        return _node("NP", friend, _preposition("of", other), clause)

    def _relative_clause(self, core: Node, kind: str, depth: int) -> Node:
        """A relative clause of a noun: who met Anna, that Anna met."""
        is_person = kind in PEOPLE
        word = Leaf("WP", "who") if is_person else Leaf("WDT", "that")
        pronoun = _node("WHNP", word)
        if (is_person or kind == "animal") and self.chance(0.6):
            clause = _node("S", self.predicate(core, depth - 1))
            return _node("SBAR", pronoun, clause)
        verbs = [
            name for name, frame in FRAMES.items() if kind in frame.objects
        ]
        verb = self.verb(self.pick(verbs) if verbs else "know")
        subject = self.name() if self.chance(0.4) else self.base("person")
        clause = _node("S", subject, _node("VP", verb.leaf("VBD")))
        if is_person or self.chance(0.5):  # the man Anna met
            return _node("SBAR", clause)
        return _node("SBAR", pronoun, clause)

    # Verb phrases

    def predicate(self, subject: Node, depth: int) -> Node:
        """A finite verb phrase: past, modal, progressive, or two of them."""
        was = Leaf("VBD", "were" if _is_plural(subject) else "was")
        draw = self._random()
        if draw < 0.1:
            first = self._past(was, 0)
            second = self._past(was, depth)
            return _node("VP", first, Leaf("CC", "and"), second)
        if draw < 0.2:
            modal = Leaf("MD", self.pick(MODALS))
            negation = Leaf("RB", "not") if self.chance(0.3) else None
            return _node("VP", modal, negation, self._simple("VB", depth))
        if draw < 0.26:
            return _node("VP", was, self._simple("VBG", depth))
        if draw < 0.32:
            did = Leaf("VBD", "did")
            return _node(
                "VP", did, Leaf("RB", "n't"), self._simple("VB", depth)
            )
        return self._past(was, depth)

    def _past(self, was: Leaf, depth: int) -> Node:
        """A verb in the past with its complement."""
        draw = self._random()
        if draw < 0.05:
            return self._copula(was)
        if draw < 0.1:
            return self._passive(was)
        return self._simple("VBD", depth)

    def _simple(self, tag: str, depth: int) -> Node:
        """A verb in one form with its complement."""
        draw = self._random()
        if draw < 0.5:
            return self._transitive(tag, depth)
        if draw < 0.56:
            return self._with_particle(tag)
        if draw < 0.62:
            return self._ditransitive(tag)
        if draw < 0.67:
            return self._placing(tag)
        if draw < 0.78:
            return self._intransitive(tag)
        if draw < 0.85:
            return self._looking(tag)
        if depth > 0:
            return self._with_clause(tag, depth)
        return self._intransitive(tag)

    def _transitive(self, tag: str, depth: int) -> Node:
        """A verb with its object, and with phrases that are its own."""
        if self.chance(TELLING):
            return self._telling(tag)
        kind = self.pick(tuple(FRAMES))
        frame, verb = FRAMES[kind], self.verb(kind)
        thing = self.nominal(frame.objects, frame, depth)
        parts: list[Node | Leaf] = [verb.leaf(tag), thing]
        if _has_clause(thing):
            return _node("VP", *parts)
        if frame.instruments and self.chance(0.4):
            instrument = self.base(
                frame.instruments, self.pick(("a", "the", ""))
            )
            parts.append(_preposition("with", instrument))
        if frame.has_source and self.chance(0.4):
            parts.append(_preposition("from", self.base("person")))
        if frame.is_action and self.chance(0.25):
            parts.append(_preposition("in", self.place()))
        parts += self._adverbials()
        if len(parts) > 2 or not self.chance(0.08):
            return _node("VP", *parts)
        # The adverb first: she quietly opened the door.
        adverb = _node("ADVP", Leaf("RB", self.pick(MANNERS)))
        return _node("VP", adverb, *parts)

    def _telling(self, tag: str) -> Node:
        """Saw or met the man with a telescope: the verb decides.

        Such phrases are rare elsewhere: one object in a thousand has one.
        """
        kinds = [k for k, f in FRAMES.items() if "person" in f.objects]
        kind = self.pick(kinds)
        frame, verb = FRAMES[kind], self.verb(kind)
        core = self.base(self.pick([k for k in PEOPLE if k in frame.objects]))
        if self.chance(0.25):
            is_of_verb = frame.is_action
            phrase = _preposition("in", self.place())
        else:
            carried = self.pick(CARRIED)
            if frame.instruments and self.chance(0.25):
                carried = frame.instruments
            is_of_verb = carried == frame.instruments
            thing = self.base(carried, self.pick(("a", "the", "")))
            phrase = _preposition("with", thing)
        parts = [core, phrase] if is_of_verb else [_node("NP", core, phrase)]
        return _node("VP", verb.leaf(tag), *parts, *self._adverbials())

    def _adverbials(self) -> list[Node]:
        """Manner or time, which belong to the nearest verb; often none."""
        draw = self._random()
        if draw < 0.08:
            return [_node("ADVP", Leaf("RB", self.pick(MANNERS)))]
        if draw < 0.14:
            return [_node("NP", Leaf("NN", self.pick(TIMES)))]
        if draw < 0.2:
            time = Leaf("NN", self.pick(PARTS_OF_DAY))
            if time.word == "night":
                return [_preposition("at", _node("NP", time))]
            return [_preposition("in", _node("NP", Leaf("DT", "the"), time))]
        return []

    def _with_particle(self, tag: str) -> Node:
        """Picked up the box, picked the box up."""
        index = int(self._random() * len(PARTICLES))
        verb = Verb(*VERBS["particle"][index])
        particle = _node("PRT", Leaf("RP", PARTICLES[index]))
        thing = self.base(self.pick(FRAMES["hold"].objects))
        parts = (particle, thing) if self.chance(0.6) else (thing, particle)
        return _node("VP", verb.leaf(tag), *parts, *self._adverbials())

    def _ditransitive(self, tag: str) -> Node:
        """Gave Anna a book, gave a book to Anna."""
        verb, thing = self.verb("give"), self.base("text")
        if self.chance(0.3):
            thing = self.modified("text")
        draw = self._random()
        if draw < 0.3:
            other = self.pronoun(is_subject=False)
        else:
            other = self.name() if draw < 0.5 else self.base("person")
        if self.chance(0.5):
            return _node("VP", verb.leaf(tag), other, thing)
        return _node("VP", verb.leaf(tag), thing, _preposition("to", other))

    def _placing(self, tag: str) -> Node:
        """Put the book with the cover into the chest."""
        verb = self.verb("place")
        thing = self.modified(self.pick(("text", "picture", "dish")))
        where = self.base("opening")
        if self.chance(0.4):
            where = self.modified("opening")
        phrase = _preposition(self.pick(("into", "behind", "under")), where)
        return _node("VP", verb.leaf(tag), thing, phrase)

    def _intransitive(self, tag: str) -> Node:
        """Slept, slept in the garden, walked to the city with a friend."""
        parts: list[Node | Leaf] = []
        if self.chance(0.5):
            parts.append(self.verb("rest").leaf(tag))
            if self.chance(0.4):
                parts.append(_preposition("in", self.place()))
        else:
            parts.append(self.verb("go").leaf(tag))
            word = self.pick(("to", "from", "through"))
            kind = self.pick(("town", "place", "building"))
            parts.append(_preposition(word, self.modified(kind)))
        if self.chance(0.2):
            other = self.name() if self.chance(0.5) else self.base("person")
            parts.append(_preposition("with", other))
        return _node("VP", *parts, *self._adverbials())

    def _looking(self, tag: str) -> Node:
        """Looked at the man with the hat, looked up the chimney."""
        verb = self.verb("look")
        if self.chance(0.4):
            where = self.base("roof", self.pick(("the", "a")))
            phrase = _preposition(self.pick(("up", "down")), where)
        else:
            phrase = _preposition("at", self.modified(self.pick(PEOPLE)))
        return _node("VP", verb.leaf(tag), phrase)

    def _copula(self, was: Leaf) -> Node:
        """Was very happy, was in the garden, was a doctor."""
        draw = self._random()
        if draw < 0.4:
            degree = None
            if self.chance(0.4):
                degree = Leaf("RB", self.pick(DEGREES))
            state = Leaf("JJ", self.pick(STATES))
            return _node("VP", was, _node("ADJP", degree, state))
        if draw < 0.7 and was.word == "was":
            core = self.base(self.pick(PEOPLE), self.pick(("a", "the")))
            return _node("VP", was, core)
        return _node("VP", was, _preposition("in", self.place()))

    def _passive(self, was: Leaf) -> Node:
        """Was seen by the man with the hat."""
        kind = self.pick(("perceive", "strike", "know"))
        verb, parts = self.verb(kind), []
        if self.chance(0.6):
            agent = self.base("person")
            if self.chance(0.4):
                agent = self.modified("person", FRAMES[kind])
            parts.append(_preposition("by", agent))
        phrase = _node("VP", verb.leaf("VBN"), *parts, *self._adverbials())
        return _node("VP", was, phrase)

    def _with_clause(self, tag: str, depth: int) -> Node:
        """Said that, told Anna that, wanted to."""
        draw = self._random()
        if draw < 0.35:
            verb = self.verb("want")
            inner = _node("VP", Leaf("TO", "to"), self._simple("VB", depth - 1))
            return _node("VP", verb.leaf(tag), _node("S", inner))
        clause = self.clause(depth - 1)
        if draw < 0.75:
            verb = self.verb("say")
            that = Leaf("IN", "that") if self.chance(0.6) else None
            return _node("VP", verb.leaf(tag), _node("SBAR", that, clause))
        verb = self.verb("tell")
        other = self.name() if self.chance(0.5) else self.base("person")
        that = Leaf("IN", "that")
        return _node("VP", verb.leaf(tag), other, _node("SBAR", that, clause))

    # Clauses and sentences

    def clause(self, depth: int) -> Node:
        """A subject and its predicate."""
        subject = self.nominal(("person", "relation", "animal"), None, depth)
        return _node("S", subject, self.predicate(subject, depth))

    def sentence(self) -> Node:
        """A whole sentence, as a tree with its root."""
        draw = self._random()
        if draw < 0.6:
            clause = self.clause(DEPTH)
            tree = _node("S", *clause.children, Leaf(".", "."))
        elif draw < 0.7:
            tree = self._two_clauses()
        elif draw < 0.8:
            tree = self._fronted()
        elif draw < 0.88:
            tree = self._quoted()
        elif draw < 0.94:
            tree = self._yes_no_question()
        else:
            tree = self._question()
        return Node(TOP, (_capitalize(tree),))

    def _two_clauses(self) -> Node:
        """Anna saw the man and the dog slept."""
        comma = Leaf(",", ",") if self.chance(0.3) else None
        conjunction = Leaf("CC", self.pick(("and", "but")))
        first, second = self.clause(0), self.clause(1)
        return _node("S", first, comma, conjunction, second, Leaf(".", "."))

    def _fronted(self) -> Node:
        """When Anna slept, the dog barked. In the morning, the dog barked."""
        clause = self.clause(1)
        if self.chance(0.7):
            word = Leaf("IN", self.pick(REASONS))
            first = _node("SBAR", word, self.clause(0))
        else:
            first = _preposition("in", self.place())
        comma, stop = Leaf(",", ","), Leaf(".", ".")
        return _node("S", first, comma, *clause.children, stop)

    def _quoted(self) -> Node:
        """`` Anna slept , '' said Peter ."""
        verb = _node("VP", self.verb("say").leaf("VBD"))
        speaker = self.name() if self.chance(0.5) else self.base("person")
        return _node(
            "S",
            Leaf("``", "``"),
            self.clause(1),
            Leaf(",", ","),
            Leaf("''", "''"),
            speaker,
            verb,
            Leaf(".", "."),
        )

    def _yes_no_question(self) -> Node:
        """Did the man see Anna?"""
        subject = self.nominal(("person", "animal"), None, 1)
        verb = Leaf("VBD", "did")
        if self.chance(0.4):
            verb = Leaf("MD", self.pick(MODALS))
        inner = self._simple("VB", 1)
        return _node("SQ", verb, subject, inner, Leaf(".", "?"))

    def _question(self) -> Node:
        """Who saw Anna? What did Anna see with the telescope?"""
        stop = Leaf(".", "?")
        if self.chance(0.6):
            pronoun = _node("WHNP", Leaf("WP", "who"))
            clause = _node("SQ", self.predicate(pronoun, 1))
            return _node("SBARQ", pronoun, clause, stop)
        pronoun = _node("WHNP", Leaf("WP", "what"))
        kind = self.pick(("eat", "open", "write", "draw", "buy", "hold"))
        frame, verb = FRAMES[kind], self.verb(kind)
        parts: list[Node | Leaf] = [verb.leaf("VB")]
        if frame.instruments and self.chance(0.4):
            parts.append(_preposition("with", self.base(frame.instruments)))
        phrase = _node("VP", *parts, *self._adverbials())
        subject = self.nominal(("person",), None, 0)
        clause = _node("SQ", Leaf("VBD", "did"), subject, phrase)
        return _node("SBARQ", pronoun, clause, stop)


def _is_plural(subject: Node) -> bool:
    """Whether the verb of a subject is plural: they were."""
    tags = [part.tag for part in subject.children if isinstance(part, Leaf)]
    words = [part.word for part in subject.children if isinstance(part, Leaf)]
    if "CC" in tags:
        return "and" in words
    if tags and tags[-1] != ",":
        return "NNS" in tags or words[-1] in ("they", "we")
    first = subject.children[0]
    return isinstance(first, Node) and _is_plural(first)


def _has_clause(tree: Node) -> bool:
    """Whether a phrase ends in a clause, so that nothing may follow it."""
    last = tree.children[-1]
    while isinstance(last, Node):
        if last.label in ("S", "SBAR"):
            return True
        last = last.children[-1]
    return False


def _capitalize(tree: Node | Leaf) -> Node | Leaf:
    """The tree with a capital letter at its beginning."""
    if isinstance(tree, Leaf):
        return Leaf(tree.tag, tree.word[0].upper() + tree.word[1:])
    first, *others = tree.children
    if isinstance(first, Leaf) and first.tag == "``":
        second, *others = others
        children = (first, _capitalize(second), *others)
    else:
        children = (_capitalize(first), *others)
    return Node(tree.label, children)
