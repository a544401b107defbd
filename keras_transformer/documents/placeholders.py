"""Parts of a text that no translation may change: `%s`, `{name}`, addresses.

In prose, `%` belongs to a number, in Turkish before it: `100%ige`, `%50'si`. So
the pattern of placeholders depends on the file: `PROSE`, the `MESSAGES` of
programs, or the format that a message declares, as `DECLARED` names them.
"""

import collections
from collections.abc import Iterator

import regex

# Repetitions are possessive or bounded, so that a hostile text does not take
# quadratic time. Braces have five levels, for ICU's plurals.
BRACES = r"\{[^{}]*+\}"
for _ in range(4):
    BRACES = r"\{(?:[^{}]++|" + BRACES + r")*+\}"
NAME = r"[A-Za-z_][A-Za-z0-9_]*+(?:-[A-Za-z0-9_]++)*+"  # in any script
ARGUMENT = r"(?:[0-9]{1,2}\$)?"
# Tags of templates: ERB, PHP.
TEMPLATE = r"(?<!%)<%(?s:.{0,300}?)%>|<\?(?:php|=)(?s:.{0,300}?)\?>"
# C's length and conversion.
LETTER = r"(?:hh|h|ll|l|q|L|j|z|t)?[diouxXeEfFgGaAcCrsSpn]"
# %s, %1$s, %-5.2f, %lld, but not 10%-ige
CONVERSION = rf"""%{ARGUMENT}(?:[\#0+-]{{0,5}}(?=[0-9*])|[\#0+]{{0,5}})
      (?:[0-9]{{1,5}}|\*)?(?:\.(?:[0-9]{{1,5}}|\*))?(?:{LETTER}|@|<PRI\w++>)"""
NO_ENDING = r"(?!%[0-9]++[aeinoAEIO])"  # Turkish: %50i
# %NAME%, %NAME; in messages also Drupal's %name, Symfony's %name%, %user.name%,
# %%name%%, %[name], Java's %,d, PHP's %'d, Go's %v
CAPITALS = r"%[A-Z][A-Z0-9_]+%?"
NAMED = rf"""{CAPITALS} | %%{NAME}%% | %\[{NAME}\]
    | %[,'][0-9.]{{0,6}}[df](?!\w)
    | (?<!\p{{N}}\s?)(?!{CONVERSION}(?:\b|_))
      %{NAME}(?:(?:\.{NAME})*+%(?!\w))?"""
# The forms of placeholders: the kinds of text that have it, and a pattern. What
# all have is certain: no sentence of a language has it.
FORMS = {
    "addresses; not in scripts without spaces": (
        "all",
        r"""(?:(?:https?|ftp)://|www\.)
        (?:[\p{Latin}\p{Cyrillic}\p{Greek}0-9\-._~:/?\#@!$&'()+,;=%]|\[\w*+\])*
        [\p{Latin}\p{Cyrillic}\p{Greek}0-9\-_~/\#@$&+=%]""",
    ),
    "addresses of e-mail": (
        "all",
        r"""[\p{Latin}\p{Cyrillic}\p{Greek}0-9_.+-]{1,64}+
        @[\p{Latin}\p{Cyrillic}\p{Greek}0-9_-]++
        (?:\.[\p{Latin}\p{Cyrillic}\p{Greek}0-9_-]+)+""",
    ),
    "tags of templates": ("all", TEMPLATE),
    "blocks of Angular, Blade and Razor: @if (x) {": (
        "all",
        r"""(?<!\w)@(?:(?:if|else\ if|elseif|for|foreach|while|switch|case
        |unless|defer|placeholder|loading|error|lang)\s?+
        \((?:[^()\n]++|\((?:[^()\n]++|\([^()\n]*+\))*+\))*+\)(?:\s?+\{)?
        |(?:else|default|empty|placeholder|loading|error|defer)\s?+\{)""",
    ),
    "names: @user, @a@b.org, @NAME@, Drupal's @count": (
        "all",
        rf"""(?<![A-Za-z0-9_@.])@(?:[.a-z]{{0,12}}:)?{NAME}
        (?:@(?:{NAME})?)?(?:[./]{NAME})*+""",
    ),
    "__init__, __count__": (
        "all",
        r"(?<![A-Za-z0-9_])__[A-Za-z0-9][A-Za-z0-9_]{0,60}?__(?![A-Za-z0-9_])",
    ),
    "Python: %(name)s": (
        "all",
        r"%\([^()%\n]{1,80}+\)[#0+-]{0,5}[0-9.]{0,9}[diouxXeEfFgGcrsa]",
    ),
    "Ruby: %<name>s": (
        "all",
        r"(?<!\p{N})%<(?!PRI)\w{1,60}+>[#0+-]{0,5}[0-9.]{0,9}[A-Za-z]",
    ),
    "Apple: %#@name@": ("all", rf"%{ARGUMENT}\#@\w{{1,80}}+@"),
    "$(NAME), $t(key), $name$, $NAME": (
        "all",
        r"""\$\(\w++\) | \$t\([^()\n]{1,200}+\)
        | \$[A-Za-z_][A-Za-z0-9_]*\$?""",
    ),
    "{name}, {0:.2f}, {{x}}, ${x}, %{x}, #{x}, ICU": (
        "all",
        rf"[$%\#]?{BRACES} | [{{}}]",
    ),
    "boost: %1%, %|1$s|": (
        "any messages printf",
        r"%[0-9]{1,2}%(?!\w) | %\|[0-9$+.A-Za-z-]{1,20}+\|",
    ),
    "Pascal: %0:s; Go: %[1]s; Windows: %1!s!": (
        "any messages printf",
        r"""%[0-9]{1,2}:[0-9.*-]{0,6}[A-Za-z](?![A-Za-z])
        | %[\#+-]{0,3}\[[0-9]{1,2}\][0-9.]{0,5}[A-Za-z] | %[\#+]v
        | %[0-9]{1,2}![^!\s]{1,8}+!""",
    ),
    "%1, %L1, $1; %5s may be one of C": (
        "any messages numbered",
        r"""%L?(?!0[0-9])[0-9]{1,2}(?![0-9]|\$|\.[0-9])(?:[dfgsuxX](?!\w))?+
        | \$[0-9](?![0-9]|[.,][0-9])""",
    ),
    "%n": ("numbered", "%L?n"),
    r"Laravel: :name, Drupal: !name, [[name]], #name#, \(name)": (
        "any messages",
        rf"""(?<![\p{{Latin}}\p{{Cyrillic}}\p{{Greek}}\p{{N}}_:)\]}}’”»]):{NAME}:?+
        | (?<![\p{{L}}\p{{N}}_!?])!(?=[a-z]){NAME}
        | \[\[[\w.:+*-]++\]\] | \$\[{NAME}\]
        | (?<!\w)\#{NAME}\# | \\\([\w.]++\)""",
    ),
    r"\(a^2\), \cite{x}, [% x %], *|X|*, shortcodes: [x id=\"1\"], [/x]": (
        "any messages prose",
        r"""(?<!\\)\\\([^\n]{1,300}?\\\) | (?<!\\)\\\[[^\n]{1,300}?\\\]
        | \$\$[^$\n]{1,300}+\$\$
        | \\[a-z]{0,9}?(?:cite|ref)[a-z]{0,9}+\{[^{}\n]{1,200}+\}
        | \[%[^%\n]{1,200}+%\] | \*\|[A-Z][^|\s]{0,60}+\|\*
        | \[/[a-z][\w-]{1,40}+\] | \[[a-z][\w-]{0,40}+
        (?:\s[\w-]{1,40}+=(?:"[^"\n]{0,200}+"|[\w-]{1,40}+)){1,20}+\s?/?\]""",
    ),
    r"\n, of which a message speaks": (
        "any messages",
        r"\\[abefnrtv](?![A-Za-z\\])",
    ),
    "lisp: ~a, ~10,2F": (
        "lisp",
        r"~[0-9,'\#v+-]{0,12}[:@]{0,2}[A-Za-z%&~|(){}\[\];^*?<>]",
    ),
    "%s, as C has it; Go's %v, PHP's %'d, GCC's %qD and %<": (
        "printf",
        rf"""%% | {CONVERSION} | %q?[\#0+',-]{{0,5}}[0-9.*]{{0,9}}[A-Za-z]
        | %[<>]""",
    ),
    "%NAME%, %name, %s: after a number, `%` is a percent sign": (
        "messages",
        rf"""(?<!\p{{N}})(?!(?<=\p{{N}}\s)%\p{{L}}[\p{{L}}'\u2019])
        (?:{NAMED}|%%|{NO_ENDING}{CONVERSION})""",
    ),
    "%NAME%, %s: apart from other words": (
        "prose",
        rf"""(?<![\p{{N}})])(?!(?<=\p{{N}}\s)%[^sd])
        (?:{CAPITALS}|{NO_ENDING}{CONVERSION})(?![\p{{L}}\p{{M}}\p{{N}}'\u2019])""",
    ),
    "what may be one": ("any", rf"{NAMED} | %% | {CONVERSION}"),
}


def _compile(kind, *forms):
    own = [f for kinds, f in FORMS.values() if kind in kinds.split()]
    certain = "|".join(f for kinds, f in FORMS.values() if kinds == "all")
    pattern = "|".join([f"(?<certain>{certain})", *own, *forms])
    return regex.compile(pattern, regex.VERBOSE)


PLACEHOLDER = _compile("any")  # all that may be one
PROSE, MESSAGES, BRACE = map(_compile, ("prose", "messages", "brace"))
C, QT, LISP = map(_compile, ("printf", "numbered", "lisp"))
# gettext's names of formats; all others are like C's.
DECLARED = {
    **dict.fromkeys("c++ csharp java perl-brace python-brace".split(), BRACE),
    **dict.fromkeys(("rust", "sh"), BRACE),
    **dict.fromkeys("kde kde-kuit qt qt-plural smalltalk ycp".split(), QT),
    **dict.fromkeys(("lisp", "scheme"), LISP),
}
STRICT_C = _compile("printf", rf"%[#0+\-\ ',I]++[0-9.*]*+{LETTER}")
# Placeholders without a number or a name.
ORDERED = regex.compile(
    r"%(?![%({|]|<(?!PRI)|\#?\[|[0-9]{1,2}[$%:]|>)|~(?![%~&|])|\{[:}]"
)
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
        and regex.fullmatch(r"%L?[0-9]{1,2}|\$[0-9]", name)
        and int(NUMBER.search(name).group()) in numbers
        for name in lost
    )


def fits_format(text: str, translation: str, kind: regex.Pattern) -> bool:
    """Returns whether a program can use a translation of a message.

    The translation must not be blank, and must have the message's line ends at
    its edges and all of its placeholders, in the same order if they lack
    numbers and names. In `C` and `LISP`, both must have the same placeholders.

    >>> fits_format("%s: %d", "%d: %s", C), fits_format("%1: %2", "%2: %1", QT)
    (False, True)
    """
    if not translation.strip() or any(
        text[at] != translation[at] and "\n" in text[at] + translation[at]
        for at in (0, -1)
    ):
        return False
    given = text, translation, kind
    if kind not in (C, LISP):
        return keeps_placeholders(*given) and keeps_order(*given)
    found, new = (_directives(t, kind) for t in given[:2])
    rest, new_rest = ("%" in STRICT_C.sub("", t) for t in given[:2])
    return found == new and (rest or not new_rest or kind is LISP)


def keeps_order(text: str, translation: str, kind: regex.Pattern) -> bool:
    """Returns whether placeholders without numbers and names keep their order.

    Placeholders that `added_placeholders` would remove are ignored. Any order
    is valid in Qt, and if no format is declared.
    """
    if kind in (PROSE, MESSAGES, QT):
        return True
    found, new = (_directives(t, kind) for t in (text, translation))
    left, kept = collections.Counter(found), []
    for name in new:
        left[name] -= 1
        kept += [name] * (left[name] >= 0)
    return found == kept


def _directives(text, kind):
    """Returns a text's placeholders, those without a number or name last.

    Their flags may look like prose: "5% of" has "% o".
    """
    matches = (STRICT_C if kind is C else kind).finditer(text)
    found = [m.group() for m in matches if m.group() != "%%"]
    return sorted(f for f in found if not ORDERED.match(f)) + [
        f for f in found if ORDERED.match(f)
    ]


def added_placeholders(
    text: str, translation: str, kind: regex.Pattern
) -> Iterator[tuple[int, int, str]]:
    """Yields edits of a translation's added placeholders.

    An edit is begin, length and new text. An added placeholder is removed if it
    is certain, if the file declares its format, or if the text has it less
    often. Numbers such as `%50` stay; in `C`, their `%` becomes `%%`.
    """
    allowed = count_placeholders(text) | count_placeholders(text, kind)
    known = frozenset(allowed)
    for match in (LISP if kind is LISP else PLACEHOLDER).finditer(translation):
        name = match.group()
        allowed[name] -= 1
        is_certain = match["certain"] or (
            kind in (C, QT, LISP) and name[0] in "%$~"
        )
        if allowed[name] >= 0 or not (is_certain or name in known):
            continue
        if not AMOUNT.match(name):
            yield match.start(), len(name), ""
        elif kind is C and name[0] == "%":
            yield match.start(), 0, "%"
