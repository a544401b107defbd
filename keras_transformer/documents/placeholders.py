"""Parts of a text that no translation may change: `%s`, `{name}`, addresses."""

import collections

import regex

# Repetitions are possessive or bounded, so that the time does not grow with the
# square of a hostile text's length. Braces have five levels, as ICU's plurals.
BRACES = r"\{[^{}]*+\}"
for _ in range(4):
    BRACES = r"\{(?:[^{}]++|" + BRACES + r")*+\}"

PLACEHOLDER = regex.compile(
    r"""
    # addresses and names; not in scripts that write no spaces
      (?:(?:https?|ftp)://|www\.)
      [\p{Latin}\p{Cyrillic}\p{Greek}0-9\-._~:/?\#@!$&'()+,;=%\[\]]*
      [\p{Latin}\p{Cyrillic}\p{Greek}0-9\-_~/\#@$&+=%]
    | [\p{Latin}\p{Cyrillic}\p{Greek}0-9_.+-]{1,64}+
      @[\p{Latin}\p{Cyrillic}\p{Greek}0-9_-]++
      (?:\.[\p{Latin}\p{Cyrillic}\p{Greek}0-9_-]+)+
    # %(name)s, $(NAME), $name$, $NAME, $1
    | %\([^()%\n]{1,80}+\)[#0+-]{0,5}[\d.]{0,9}[diouxXeEfFgGcrsa]
    | \$\(\w++\) | \$[A-Za-z0-9_]++\$ | \$[A-Za-z_][A-Za-z0-9_]*
    | \$\d(?!\d|[.,]\d)
    # %NAME%, %NAME, %1, %L1, %%
    | %[A-Z][A-Z0-9_]+%? | %L?\d{1,2}(?!\d|\$|\.\d) | %%
    # C: %s, %1$s, %-5.2f, %lld, but not 10%-ige; Qt: %n
    | %(?:\d{1,2}\$)?(?:[#0+-]{0,5}(?=[\d*])|[#0+]{0,5})
      (?:\d{1,5}|\*)?(?:\.(?:\d{1,5}|\*))?
      (?:hh|h|ll|l|q|L|j|z|t)?[diouxXeEfFgGaAcCrsSpn@]
    # {name}, {0:.2f}, {{x}}, ${x}, %{x}, #{x}, nested as in ICU's plurals
    | [$%\#]?"""
    + BRACES,
    regex.VERBOSE,
)


def count_placeholders(text: str) -> collections.Counter[str]:
    """How often each placeholder is in a text.

    >>> count_placeholders("%s of {n} files: %s")
    Counter({'%s': 2, '{n}': 1})
    """
    return collections.Counter(m.group() for m in PLACEHOLDER.finditer(text))
