"""Formats that no reader reads. They are refused, so as not to be text.

Each has a pattern of the start of its files, or of their first line that is no
comment. It needs more than prose may have: `{` and `key: value` are text.
"""

import regex

# Lines before the first that says what a file is: blank, or a comment.
COMMENTS = regex.compile(
    r"(?:\s++|(?:\#(?!!|include|define|\+)|//|--|;|%(?!PDF|!PS))[^\n]*+(?:\n|\Z)"
    r"|/\*(?:[^*]++|\*(?!/))*+\*/)*+"
)
CELL = r"(?:\"[^\"\n]*+\"|[\w.-]++)"
NAME = r"[A-Za-z_][\w.-]*+"
# Case counts: "Select a word from the list" is no SQL.
PATTERNS = {
    "XML": r"""(?:<!--.*?-->\s*+)*+<(?:\?|!(?!--)[A-Za-z]
    |[A-Za-z_][\w.-]*+:[A-Za-z]|([A-Za-z_][\w.-]*+)(?=[\s/>])
    (?:[^>]*?\sxmlns|[^>]*+(?<=/)>|.*?</\1\s*+>))""",
    "RTF": r"\{\\(?:u?rtf|pwi)",
    "a PDF or PostScript file": r"%PDF-|%!PS",
    "an archive": r"PK[\x05\x07]|\x1f\x8b",
    "LaTeX": r"""\\(?:documentclass|usepackage|begin|input|title|part|chapter
    |(?:sub){0,2}section|newcommand|def)\*?+\s*+[\[{\\]
    |@\w++\{[\w:.-]++,[ \t]*+\r?\n""",
    "LRC": r"""\[(?:\d{1,3}:\d\d(?:\.\d{1,3}\]|(?::\d\d)?+\](?=\S))
    |(?:ti|ar|al|au|by|re|ve|la|length|offset):[^\]\n]*+\]\s*+\[)""",
    "subtitles": r"""\{\d++\}\{\d*+\}|\[\d++\]\[\d++\][^\n]*+\n\[\d++\]\[\d
    |\[INFORMATION\]|Scenarist_SCC|<SAMI>|-->>\ \d
    |\d++:\d\d:\d\d\.\d\d\ \d++:\d\d:
    |\d{1,2}:\d\d:\d\d(?:[:=](?=[^\W\d])|\.\d++,\d{1,2}:\d\d:\d\d\.\d)""",
    "INI or TOML": rf"""\[\[?+[\w.: "'$/-]++\]\]?+[ \t]*+\r?\n
    (?:(?:[#;][^\n]*+)?+\n)*+{NAME}(?:\[[\w@-]++\])?+[ \t]*+=
    |{NAME}[ \t]*+=[ \t]*+["\[{{]|export\ {NAME}=|Windows\ Registry""",
    # A head that says so, quotation marks, or three columns: not "red,green".
    "a table": rf"""(?=[^\n]*?\b(?i:id|key|source|target|src|tgt|text|value|term
    |string|context|en|english)\b|"|(?:[^\n,;|]++[,;|]){{2}}[^\n]++\n
    (?:[^\n,;|]++[,;|]){{2}}\S)
    {CELL}([,;|\t])\ ?+{CELL}(?:\1\ ?+{CELL})*+[ \t]*+\r?\n
    (?:"[^"]*+"|(?:(?!\1)[^\n"])*+)\1\ ?+(?=[^\s,;])""",
    "SQL": r"""(?:CREATE|ALTER|DROP)\ (?:\w++\ ){0,3}?(?:TABLE|DATABASE|SCHEMA
    |VIEW|INDEX|FUNCTION)\b|INSERT\ INTO\s|SELECT\s.*?\sFROM\s
    |UPDATE\s\S++\sSET\s|DELETE\ FROM\s|(?:insert\ into|create\ table)
    (?:\ if\ not\ exists)?+\ \S++\ (?:\(|values)""",
    "source code": r"""\#!|\#(?:include\s*+[<"]|define\s)
    |(?:import|using|package|use|namespace)(?:\ static)?+\s[\w.*:\\]++
    (?:\{[^}]*+\})?+;[ \t]*+\r?\n|from\s[\w.]++\simport\s
    |import\s[^\n;]*?\sfrom\s["'](?!.*?\n\#{1,6}+\ )
    |import\s[\w.]++(?:\sas\s\w++)?+\r?\n(?:import|from|\r?\n(?:def|class))\s
    |(?:(?:async|export|default|public|private|static|final|abstract)\ )*+
    (?:(?:def|function|fn|func|fun|sub)\s\w++\s*+\(
    |(?:class|interface|struct|enum|object)\s\w++(?:[^\n.{]*+\{[ \t]*+\r?\n
    |(?:\([^)\n]*+\))?+:[ \t]*+\r?\n\s++(?:def|"{3}|\w++\ ?[=:])))
    |(?:export\ )?+(?:const|let|var|val)\s\w++\s*+(?::[^\n=]*+)?+=
    |module\.exports\s*+=|export\ default\s|package\s\w++\r?\n
    |(?:int|void)\s\w++\([^)\n]*+\)\s*+\{
    |[.\#@\w][\w.\#:@*> ,\[\]="()-]*+\{\s*+[\w-]++\s*+:[^;{}\n]*+;
    |(?:class|module)\s\w++(?:\ <\ [\w:]++)?+\r?\n\s++(?:def|class|attr_)
    |---\ \S++[^\n]*+\n\+{3}\ |STRINGTABLE\s|!(?:insertmacro|include)\s
    |FROM\ \S++\s++(?:RUN|COPY|WORKDIR|ENV|ARG|LABEL|ADD)\s
    |@import\ (?:url|["'])|import\ \w++\s++[\w.]++\(|return\ \{\s
    |local\ \w++\ =\ |\w++\ =\ \w++\(["']|\$[A-Za-z][\w-]*+:\ [^;\n]++;
    |define\(\{|\{(?:\s*+//[^\n]*+\n)++\s*+"|"{3}|\{[ \t]*+\r?\n\s*+\w++\s*+:\s
    |\{\s*+"[^"\n]*+"\s*+:
    |diff\ --git\ |BEGIN:V[A-Z]++\r?\n""",
    "a catalogue of translations": r"""\{\s*+"sourceLanguage"\s*+:""",
    "other markup": r"""\.\.\ [\w-]++::|\#\+[A-Za-z_]++:|\.(?:TH|Dd|SH)\x20
    |['.]\\"|=head\d\s|=++\ \S[^\n]*+\n|h\d\.\ \S[^\n]*+\n|\{\{Infobox""",
}
UNREAD = {
    name: regex.compile(pattern, regex.S | regex.X)
    for name, pattern in PATTERNS.items()
}
SUFFIXES = frozenset(
    """.xml .tmx .tbx .ts .plist .svg .ttml .dfxp .rss .fodt .rtf .pdf .ps .eps
    .zip .gz .tar .7z .rar .bz2 .xz .doc .xls .ppt .pptx .odp .tex
    .ltx .sty .cls .bib .lrc .sub .sbv .smi .stl .mpl .ini .toml .cfg .conf
    .env .desktop .lang .sql .py .js .jsx .mjs .cjs .tsx .java
    .kt .swift .m .c .h .cpp .hpp .cc .cs .go .rs .rb .php .pl .lua .r .sh
    .bash .bat .ps1 .css .scss .sass .less .vue .svelte .dart .scala .rc .diff
    .patch .jsonl .ndjson .json5 .jsonc .ipynb .ics .vcf .dtd .mo .xcstrings
    .qm .rst .adoc .asciidoc .org .textile .wiki .typ""".split()
)


def known_format(suffix: str, start: str) -> str:
    """Names the format of a file that no reader reads, or returns "".

    >>> known_format("", "% dogs"), known_format("", r"\\section{Dogs}")
    ('', 'LaTeX')
    """
    begin = COMMENTS.match(start).end()
    # What is indented may be code of Markdown.
    places = {0, begin} if start[begin - 1 : begin] == "\n" else {0}
    if suffix in SUFFIXES:
        return f"the suffix {suffix}"
    names = (
        name
        for name, pattern in UNREAD.items()
        if any(pattern.match(start, place) for place in places)
    )
    return next(names, "")
