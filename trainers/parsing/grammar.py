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

from collections.abc import Sequence

from trainers.parsing import lexicon
from trainers.parsing.lexicon import Frame
from trainers.parsing.trees import TOP, Leaf, Node, Part
from trainers.phrasebook.drawing import Sampler

PEOPLE = ("person", "relation")
ARTICLES = ("a", "the")
DEPTH = 2  # clauses inside the main clause, at most, one in the other
TELLING = 0.2  # of the verbs with an object: their complement decides the tree


def _node(label: str, *children: Part | str | None) -> Node:
    """A constituent of the children that there are; a `str` is its own tag."""
    parts = (
        Leaf(child, child) if isinstance(child, str) else child
        for child in children
    )
    return Node(label, tuple(part for part in parts if part))


def _preposition(word: str, phrase: Node) -> Node:
    """A prepositional phrase."""
    return _node("PP", Leaf("TO" if word == "to" else "IN", word), phrase)


def _verbs_with(kind: str) -> list[str]:
    """The classes of verbs whose object may be a noun of a class."""
    return [k for k, frame in lexicon.FRAMES.items() if kind in frame.objects]


class TreeSampler(Sampler):
    """Makes random sentences with their trees."""

    def word(self, tag: str, words: Sequence[str]) -> Leaf:
        """One of the words, with its tag."""
        return Leaf(tag, self.pick(words))

    def verb(self, kind: str, tag: str) -> Leaf:
        """A verb of a class, in the form that has a tag."""
        return Leaf(tag, self.pick(lexicon.VERBS[kind])[tag])

    # Noun phrases

    def base(self, kind: str, determiner: str = "") -> Node:
        """A noun with its modifiers: the very old man."""
        forms = self.pick(lexicon.NOUNS[kind])
        is_plural = not determiner and self.chance(0.2)
        tag = "NNS" if is_plural else "NN"
        noun = first = Leaf(tag, forms[tag])
        modifier: Part | None = None
        if lexicon.ADJECTIVES[kind] and self.chance(0.3):
            modifier = first = self.word("JJ", lexicon.ADJECTIVES[kind])
            if self.chance(0.2):
                first = self.word("RB", lexicon.DEGREES)
                modifier = _node("ADJP", first, modifier)
        whose = self._determiner(determiner, is_plural, first.word)
        return _node("NP", whose, modifier, noun)

    def thing(self, kind: str) -> Node:
        """A noun that often has an article: a hat, the hat, two hats."""
        return self.base(kind, self.pick((*ARTICLES, "")))

    def person(self, names: float = 0.5) -> Node:
        """A name, with this probability, or a person."""
        return self.name() if self.chance(names) else self.base("person")

    def _determiner(self, given: str, is_plural: bool, first: str) -> Part:
        """A determiner, a number, or whose it is."""
        article = "an" if first[0] in "aeiou" else "a"
        if given:
            return Leaf("DT", article if given == "a" else given)
        draw = self._random()
        if draw < 0.5:
            return Leaf("DT", "the")
        if draw < 0.6:
            return self.word("PRP$", lexicon.POSSESSIVES)
        if draw < 0.66:
            name = self.word("NNP", lexicon.NAMES)
            return _node("NP", name, Leaf("POS", "'s"))
        if is_plural:
            if draw < 0.8:
                return self.word("CD", lexicon.NUMBERS)
            return self.word("DT", ("these", "some"))
        return Leaf("DT", article if draw < 0.95 else "this")

    def name(self) -> Node:
        """A name; with a title, or with an apposition."""
        name = self.word("NNP", lexicon.NAMES)
        if self.chance(0.15):
            return _node("NP", self.word("NNP", lexicon.TITLES), name)
        if self.chance(0.1):
            apposition = self.base("person", "the")
            return _node("NP", _node("NP", name), ",", apposition, ",")
        return _node("NP", name)

    def pronoun(self, is_subject: bool) -> Node:
        """A pronoun."""
        subject, other = self.pick(lexicon.PRONOUNS).split()
        return _node("NP", Leaf("PRP", subject if is_subject else other))

    def modified(
        self, kind: str, frame: Frame | None = None, num_phrases: int = 1
    ) -> Node:
        """A noun with at most so many prepositional phrases of its own.

        They cannot be those of the verb that has the frame, if the noun is its
        object.
        """
        core = self.base(kind)
        phrases: dict[Part, Node] = {}  # by their preposition
        for _ in range(num_phrases):
            if phrase := self._noun_phrase_modifier(kind, frame):
                phrases.setdefault(phrase.children[0], phrase)
        return _node("NP", core, *phrases.values()) if phrases else core

    def perhaps_modified(
        self, kind: str, probability: float, frame: Frame | None = None
    ) -> Node:
        """A noun that is `modified` with this probability."""
        plain = self.base(kind)
        return self.modified(kind, frame) if self.chance(probability) else plain

    def _noun_phrase_modifier(
        self, kind: str, frame: Frame | None
    ) -> Node | None:
        """A prepositional phrase that belongs to a noun, or None."""
        choices = []
        if kind in lexicon.PARTS:
            choices += ["with", "with"]
        if kind in ("relation", "picture"):
            choices += ["of"]
        if kind == "text":
            choices += ["about"]
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
            return self.in_place()
        return _preposition("from", self.base("town", "the"))

    def _part(self, kind: str, frame: Frame | None) -> Node:
        """Possessions of a noun of a class that the verb does not use."""
        if kind in PEOPLE and self.chance(0.6):
            used = frame.instruments if frame else ""
            return self.thing(
                self.pick([c for c in lexicon.CARRIED if c != used])
            )
        return self.thing(lexicon.PARTS[kind])

    def in_place(self) -> Node:
        """In a place, which may have a part: in the garden with a pond."""
        place = self.base("place", "the")
        if self.chance(0.3):
            part = self.base("fountain", self.pick(ARTICLES))
            place = _node("NP", place, _preposition("with", part))
        return _preposition("in", place)

    def nominal(
        self, kinds: tuple[str, ...], frame: Frame | None, depth: int
    ) -> Node:
        """A noun phrase of any form, with so many clauses in each other.

        The frame is that of the verb whose object it is; None of a subject.
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
        last = self.perhaps_modified(self.pick(kinds), 0.3, frame)
        first = self.base(self.pick(kinds))
        conjunction = self.word("CC", ("and", "or"))
        if self.chance(0.2):
            middle = self.base(self.pick(kinds))
            return _node("NP", first, ",", middle, conjunction, last)
        return _node("NP", first, conjunction, last)

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
        verbs = _verbs_with(kind)
        verb = self.verb(self.pick(verbs) if verbs else "know", "VBD")
        clause = _node("S", self.person(0.4), _node("VP", verb))
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
            modal = self.word("MD", lexicon.MODALS)
            negation = Leaf("RB", "not") if self.chance(0.3) else None
            return _node("VP", modal, negation, self._simple("VB", depth))
        if draw < 0.26:
            return _node("VP", was, self._simple("VBG", depth))
        if draw < 0.32:
            did, negation = Leaf("VBD", "did"), Leaf("RB", "n't")
            return _node("VP", did, negation, self._simple("VB", depth))
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
        kind = self.pick(tuple(lexicon.FRAMES))
        frame, verb = lexicon.FRAMES[kind], self.verb(kind, tag)
        thing = self.nominal(frame.objects, frame, depth)
        parts: list[Part] = [verb, thing]
        if _has_clause(thing):
            return _node("VP", *parts)
        if frame.instruments and self.chance(0.4):
            parts.append(_preposition("with", self.thing(frame.instruments)))
        if frame.has_source and self.chance(0.4):
            parts.append(_preposition("from", self.base("person")))
        if frame.is_action and self.chance(0.25):
            parts.append(self.in_place())
        parts += self._adverbials()
        if len(parts) > 2 or not self.chance(0.08):
            return _node("VP", *parts)
        # The adverb first: she quietly opened the door.
        adverb = _node("ADVP", self.word("RB", lexicon.MANNERS))
        return _node("VP", adverb, *parts)

    def _telling(self, tag: str) -> Node:
        """Saw or met the man with a telescope: the verb decides.

        Such phrases are rare elsewhere: one object in a thousand has one.
        """
        kind = self.pick(_verbs_with("person"))
        frame, verb = lexicon.FRAMES[kind], self.verb(kind, tag)
        core = self.base(self.pick([k for k in PEOPLE if k in frame.objects]))
        if self.chance(0.25):
            is_of_verb = frame.is_action
            phrase = self.in_place()
        else:
            carried = self.pick(lexicon.CARRIED)
            if frame.instruments and self.chance(0.25):
                carried = frame.instruments
            is_of_verb = carried == frame.instruments
            phrase = _preposition("with", self.thing(carried))
        parts = [core, phrase] if is_of_verb else [_node("NP", core, phrase)]
        return _node("VP", verb, *parts, *self._adverbials())

    def _adverbials(self) -> list[Node]:
        """Manner or time, which belong to the nearest verb; often none."""
        draw = self._random()
        if draw < 0.08:
            return [_node("ADVP", self.word("RB", lexicon.MANNERS))]
        if draw < 0.14:
            return [_node("NP", self.word("NN", lexicon.TIMES))]
        if draw < 0.2:
            time = self.word("NN", lexicon.PARTS_OF_DAY)
            if time.word == "night":
                return [_preposition("at", _node("NP", time))]
            return [_preposition("in", _node("NP", Leaf("DT", "the"), time))]
        return []

    def _with_particle(self, tag: str) -> Node:
        """Picked up the box, picked the box up."""
        index = int(self._random() * len(lexicon.PARTICLES))
        verb = Leaf(tag, lexicon.VERBS["particle"][index][tag])
        particle = _node("PRT", Leaf("RP", lexicon.PARTICLES[index]))
        thing = self.base(self.pick(lexicon.FRAMES["hold"].objects))
        parts = (particle, thing) if self.chance(0.6) else (thing, particle)
        return _node("VP", verb, *parts, *self._adverbials())

    def _ditransitive(self, tag: str) -> Node:
        """Gave Anna a book, gave a book to Anna."""
        verb = self.verb("give", tag)
        thing = self.perhaps_modified("text", 0.3)
        draw = self._random()
        if draw < 0.3:
            other = self.pronoun(is_subject=False)
        else:
            other = self.name() if draw < 0.5 else self.base("person")
        if self.chance(0.5):
            return _node("VP", verb, other, thing)
        return _node("VP", verb, thing, _preposition("to", other))

    def _placing(self, tag: str) -> Node:
        """Put the book with the cover into the chest."""
        verb = self.verb("place", tag)
        thing = self.modified(self.pick(("text", "picture", "dish")))
        where = self.perhaps_modified("opening", 0.4)
        phrase = _preposition(self.pick(("into", "behind", "under")), where)
        return _node("VP", verb, thing, phrase)

    def _intransitive(self, tag: str) -> Node:
        """Slept, slept in the garden, walked to the city with a friend."""
        parts: list[Part] = []
        if self.chance(0.5):
            parts.append(self.verb("rest", tag))
            if self.chance(0.4):
                parts.append(self.in_place())
        else:
            parts.append(self.verb("go", tag))
            word = self.pick(("to", "from", "through"))
            kind = self.pick(("town", "place", "building"))
            parts.append(_preposition(word, self.modified(kind)))
        if self.chance(0.2):
            parts.append(_preposition("with", self.person()))
        return _node("VP", *parts, *self._adverbials())

    def _looking(self, tag: str) -> Node:
        """Looked at the man with the hat, looked up the chimney."""
        verb = self.verb("look", tag)
        if self.chance(0.4):
            where = self.base("roof", self.pick(("the", "a")))
            phrase = _preposition(self.pick(("up", "down")), where)
        else:
            phrase = _preposition("at", self.modified(self.pick(PEOPLE)))
        return _node("VP", verb, phrase)

    def _copula(self, was: Leaf) -> Node:
        """Was very happy, was in the garden, was a doctor."""
        draw = self._random()
        if draw < 0.4:
            has_degree = self.chance(0.4)
            degree = self.word("RB", lexicon.DEGREES) if has_degree else None
            state = self.word("JJ", lexicon.STATES)
            return _node("VP", was, _node("ADJP", degree, state))
        if draw < 0.7 and was.word == "was":
            core = self.base(self.pick(PEOPLE), self.pick(ARTICLES))
            return _node("VP", was, core)
        return _node("VP", was, self.in_place())

    def _passive(self, was: Leaf) -> Node:
        """Was seen by the man with the hat."""
        kind = self.pick(("perceive", "strike", "know"))
        parts: list[Part] = [self.verb(kind, "VBN")]
        if self.chance(0.6):
            agent = self.perhaps_modified("person", 0.4, lexicon.FRAMES[kind])
            parts.append(_preposition("by", agent))
        phrase = _node("VP", *parts, *self._adverbials())
        return _node("VP", was, phrase)

    def _with_clause(self, tag: str, depth: int) -> Node:
        """Said that, told Anna that, wanted to."""
        draw = self._random()
        if draw < 0.35:
            verb = self.verb("want", tag)
            inner = _node("VP", Leaf("TO", "to"), self._simple("VB", depth - 1))
            return _node("VP", verb, _node("S", inner))
        clause, that = self.clause(depth - 1), Leaf("IN", "that")
        if draw < 0.75:
            verb = self.verb("say", tag)
            has_that = self.chance(0.6)
            inner = _node("SBAR", that if has_that else None, clause)
            return _node("VP", verb, inner)
        verb, other = self.verb("tell", tag), self.person()
        return _node("VP", verb, other, _node("SBAR", that, clause))

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
            tree = _node("S", *clause.children, ".")
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
        comma = "," if self.chance(0.3) else None
        conjunction = self.word("CC", ("and", "but"))
        first, second = self.clause(0), self.clause(1)
        return _node("S", first, comma, conjunction, second, ".")

    def _fronted(self) -> Node:
        """When Anna slept, the dog barked. In the morning, the dog barked."""
        clause = self.clause(1)
        if self.chance(0.7):
            word = self.word("IN", lexicon.REASONS)
            first = _node("SBAR", word, self.clause(0))
        else:
            first = self.in_place()
        return _node("S", first, ",", *clause.children, ".")

    def _quoted(self) -> Node:
        """`` Anna slept , '' said Peter ."""
        verb = _node("VP", self.verb("say", "VBD"))
        speaker, clause = self.person(), self.clause(1)
        return _node("S", "``", clause, ",", "''", speaker, verb, ".")

    def _yes_no_question(self) -> Node:
        """Did the man see Anna?"""
        subject = self.nominal(("person", "animal"), None, 1)
        verb = Leaf("VBD", "did")
        if self.chance(0.4):
            verb = self.word("MD", lexicon.MODALS)
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
        frame = lexicon.FRAMES[kind]
        parts: list[Part] = [self.verb(kind, "VB")]
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


def _capitalize(tree: Part) -> Part:
    """The tree with a capital letter at its beginning."""
    if isinstance(tree, Leaf):
        return Leaf(tree.tag, tree.word[0].upper() + tree.word[1:])
    first, *others = tree.children
    if first == Leaf("``", "``"):
        second, *others = others
        return _node(tree.label, first, _capitalize(second), *others)
    return _node(tree.label, _capitalize(first), *others)
