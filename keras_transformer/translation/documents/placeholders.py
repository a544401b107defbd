"""Parts of a text that no translation may change: `%s`, `{name}`, addresses."""

import collections

import regex

PLACEHOLDER = regex.compile(
    r"""
    # addresses
      (?:https?|ftp)://[^\s<>"'{}]*[^\s<>"'{}.,;:!?)\]]
    | www\.[^\s<>"']*[^\s<>"'.,;:!?)\]]
    | [\w.+-]+@[\w-]+(?:\.[\w-]+)+
    # {name}, {0:.2f}, {{x}}, ${x}, %{x}, #{x}, nested as in ICU's plurals
    | [$%\#]?(?<braces>\{(?:[^{}]|(?&braces))*\})
    # %(name)s, $(NAME), $name$, $NAME, $1
    | %\(\w+\)[#0+-]*[\d.]*[diouxXeEfFgGcrsa]
    | \$\(\w+\) | \$\w+\$ | \$[A-Za-z_]\w* | \$\d(?![\d.,])
    # %NAME%, %NAME, %1, %L1, %%
    | %[A-Z][A-Z0-9_]+%? | %L?\d{1,2}(?![\d$.]) | %%
    # C: %s, %1$s, %-5.2f, %lld; Qt: %n
    | %(?:\d+\$)?[#0+-]*(?:\d+|\*)?(?:\.(?:\d+|\*))?
      (?:hh|h|ll|l|q|L|j|z|t)?[diouxXeEfFgGaAcCsSpn@]
    """,
    regex.VERBOSE,
)


def count_placeholders(text: str) -> collections.Counter[str]:
    """How often each placeholder is in a text.

    >>> count_placeholders("%s of {n} files: %s")
    Counter({'%s': 2, '{n}': 1})
    """
    return collections.Counter(m.group() for m in PLACEHOLDER.finditer(text))
