"""Parts of a text that no translation may change: `%s`, `{name}`, addresses.

In prose, `%` belongs to a number, in Turkish before it: `100%ige`, `%50'si`. So
the pattern of placeholders depends on the file: `PROSE`, the `MESSAGES` of
programs, or `C` or `QT` if a message declares that format.
"""

import collections
from collections.abc import Iterator

import regex

# Repetitions are possessive or bounded, so that a hostile text does not take
# quadratic time. Braces have five levels, for ICU's plurals.
BRACES = r"\{[^{}]*+\}"
for _ in range(4):
    BRACES = r"\{(?:[^{}]++|" + BRACES + r")*+\}"
CERTAIN = (
    r"""
    # addresses and names; not in scripts that write no spaces
      (?:(?:https?|ftp)://|www\.)
      [\p{Latin}\p{Cyrillic}\p{Greek}0-9\-._~:/?\#@!$&'()+,;=%\[\]]*
      [\p{Latin}\p{Cyrillic}\p{Greek}0-9\-_~/\#@$&+=%]
    | [\p{Latin}\p{Cyrillic}\p{Greek}0-9_.+-]{1,64}+
      @[\p{Latin}\p{Cyrillic}\p{Greek}0-9_-]++
      (?:\.[\p{Latin}\p{Cyrillic}\p{Greek}0-9_-]+)+
    # %(name)s, $(NAME), $name$, $NAME
    | %\([^()%\n]{1,80}+\)[#0+-]{0,5}[0-9.]{0,9}[diouxXeEfFgGcrsa]
    | \$\(\w++\) | \$[A-Za-z_][A-Za-z0-9_]*\$?
    # {name}, {0:.2f}, {{x}}, ${x}, %{x}, #{x}, nested as in ICU's plurals
    | [$%\#]?"""
    + BRACES
)
# %1, %L1, $1
NUMBERED = r"%L?[0-9]{1,2}(?![0-9]|\$|\.[0-9]) | \$[0-9](?![0-9]|[.,][0-9])"
# %s, %1$s, %-5.2f, %lld, but not 10%-ige; Qt: %n; and %NAME%, %NAME
CONVERSION = r"""%(?:[0-9]{1,2}\$)?(?:[#0+-]{0,5}(?=[0-9*])|[#0+]{0,5})
      (?:[0-9]{1,5}|\*)?(?:\.(?:[0-9]{1,5}|\*))?
      (?:(?:hh|h|ll|l|q|L|j|z|t)?[diouxXeEfFgGaAcCrsSpn@]|<PRI\w++>)"""
NAMED = r"%[A-Z][A-Z0-9_]+%?"
NO_ENDING = r"(?!%[0-9]++[aeinoAEIO])"  # Turkish: %50i


def _compile(*forms):
    return regex.compile("|".join([CERTAIN, *forms]), regex.VERBOSE)


PLACEHOLDER = _compile(NUMBERED, NAMED, "%%", CONVERSION)  # all that may be one
C, QT = _compile("%%", CONVERSION), _compile(NUMBERED, "%n")
# A `%` after a number is a percent sign; before one, it may be.
MESSAGES = _compile(
    NUMBERED,
    rf"""(?<!\p{{N}})(?!(?<=\p{{N}}\s)%\p{{L}}[\p{{L}}'\u2019])
        (?:{NAMED}|%%|{NO_ENDING}{CONVERSION})""",
)
PROSE = _compile(
    rf"""(?<![\p{{N}})])(?!(?<=\p{{N}}\s)%[^sd])
        (?:{NAMED}|{NO_ENDING}{CONVERSION})(?![\p{{L}}\p{{M}}\p{{N}}'\u2019])"""
)
STRICT_C = _compile(
    "%%",
    CONVERSION,
    r"%[#0+\-\ 'I]++[0-9.*]*+(?:hh|h|ll|l|q|L|j|z|t)?[diouxXeEfFgGaAcCrsSpn]",
)
ORDERED = regex.compile(r"%(?![%(]|[0-9]{1,2}\$)")
NUMBER = regex.compile(r"\p{Nd}+")
AMOUNT = regex.compile(r"[%$]L?[0-9]++(?!\$)")


def count_placeholders(
    text: str, kind: regex.Pattern = PLACEHOLDER
) -> collections.Counter[str]:
    """Counts how often each placeholder is in a text.

    >>> count_placeholders("%s of {n} files: %s")
    Counter({'%s': 2, '{n}': 1})
    """
    return collections.Counter(m.group() for m in kind.finditer(text))


def keeps_placeholders(
    text: str, translation: str, kind: regex.Pattern
) -> bool:
    """Returns whether a translation has all placeholders of a text.

    In `MESSAGES`, the translation keeps `%50` if it has the number 50.
    """
    found = count_placeholders(translation)
    found |= count_placeholders(translation, kind)
    lost = count_placeholders(text, kind) - found
    numbers = {int(n) for n in NUMBER.findall(translation)}
    return all(
        kind is MESSAGES
        and regex.fullmatch(NUMBERED, name, regex.VERBOSE)
        and int(NUMBER.search(name).group()) in numbers
        for name in lost
    )


def fits_format(text: str, translation: str, kind: regex.Pattern) -> bool:
    """Returns whether a program can use a translation of a message.

    The translation must not be blank, and must have the message's line ends at
    its edges and all of its placeholders. In `C`, both must have the same
    placeholders, in the same order if they lack numbers and names.

    >>> fits_format("%s: %d", "%d: %s", C), fits_format("%1: %2", "%2: %1", QT)
    (False, True)
    """
    if not translation.strip() or any(
        text[at] != translation[at] and "\n" in text[at] + translation[at]
        for at in (0, -1)
    ):
        return False
    if kind is not C:
        return keeps_placeholders(text, translation, kind)
    (found, rest), (new, new_rest) = map(_directives, (text, translation))
    return found == new and (rest or not new_rest)


def keeps_order(text: str, translation: str, kind: regex.Pattern) -> bool:
    """Returns whether C's placeholders without numbers keep their order.

    Placeholders that `added_placeholders` would remove are ignored. Any order
    is valid for other kinds.
    """
    found, new = (_directives(t)[0] for t in (text, translation))
    left, kept = collections.Counter(found), []
    for name in new:
        left[name] -= 1
        kept += [name] * (left[name] >= 0)
    return kind is not C or found == kept


def _directives(text):
    """Returns C's placeholders, and whether the text has another `%`.

    Placeholders without a number or name come last. Their flags may look like
    prose: "5% of" has "% o".
    """
    found = [name for name in STRICT_C.findall(text) if name != "%%"]
    return (
        sorted(f for f in found if not ORDERED.match(f))
        + [f for f in found if ORDERED.match(f)],
        "%" in STRICT_C.sub("", text),
    )


def added_placeholders(
    text: str, translation: str, kind: regex.Pattern
) -> Iterator[tuple[int, int, str]]:
    """Yields edits of a translation's added placeholders.

    An edit is begin, length and new text. An added placeholder is removed if it
    is certain, if the file declares its format, or if the text has it less
    often. Numbers such as `%50` stay; in `C`, their `%` becomes `%%`.
    """
    allowed = count_placeholders(text)
    known = frozenset(allowed)
    for match in PLACEHOLDER.finditer(translation):
        name = match.group()
        allowed[name] -= 1
        is_certain = name[0] != "%" or name[1] in "({" or kind in (C, QT)
        if allowed[name] >= 0 or not (is_certain or name in known):
            continue
        if not AMOUNT.match(name):
            yield match.start(), len(name), ""
        elif kind is C and name[0] == "%":
            yield match.start(), 0, "%"
