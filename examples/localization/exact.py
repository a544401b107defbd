"""The share of translations that are exactly the reference, in percent.

kt-evaluate ... --score_command="python exact.py {output} {reference}"
"""

import sys

outputs, references = (
    [*open(path, encoding="utf-8", newline="\n")] for path in sys.argv[1:]
)
same = sum(a == b for a, b in zip(outputs, references, strict=True))
print(f"exact matches: {100 * same / len(references):.2f}")
