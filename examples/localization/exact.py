"""The share of translations that are exactly the reference, in percent.

kt-evaluate ... --score_command="python exact.py {output} {reference}"
"""

import sys

outputs, references = (
    open(path, encoding="utf-8").read().splitlines() for path in sys.argv[1:]
)
same = sum(map(str.__eq__, outputs, references))
print(f"exact matches: {100 * same / len(references):.2f}")
