"""Symmetrizes word links of both directions: grow-diag-final-and.

    python examples/symmetrize_links.py FORWARD REVERSE > links.txt

Both files have a line for each pair, with links such as 0-0 1-2, always source
word first; eflomal writes both at once. Links that both files have are right
most often. Others are added where they continue these (Koehn et al. 2005).
"""

import sys

NEIGHBORS = [(i, j) for i in (-1, 0, 1) for j in (-1, 0, 1) if i or j]


def symmetrize(forward, reverse):
    """Links of a pair from those of both directions, sets of (source, target).

    Begins with the intersection. grow-diag: adds links beside chosen ones, also
    diagonally, if one of the words has no link yet. final-and: then adds the
    links of which neither word has one.
    """
    chosen = forward & reverse
    others = (forward | reverse) - chosen
    sources, targets = ({link[side] for link in chosen} for side in (0, 1))

    def add(link):
        chosen.add(link)
        others.discard(link)
        sources.add(link[0])
        targets.add(link[1])

    before = -1
    while len(chosen) > before:
        before = len(chosen)
        for source, target in sorted(chosen):
            for i, j in NEIGHBORS:
                link = source + i, target + j
                is_new = link[0] not in sources or link[1] not in targets
                if link in others and is_new:
                    add(link)
    for link in sorted(others & forward) + sorted(others & reverse):
        if link[0] not in sources and link[1] not in targets:
            add(link)
    return chosen


def main(*paths):
    files = [open(path) for path in paths]
    for lines in zip(*files, strict=True):
        links = [[link.split("-") for link in line.split()] for line in lines]
        both = [{(int(i), int(j)) for i, j in side} for side in links]
        print(*(f"{i}-{j}" for i, j in sorted(symmetrize(*both))))


if __name__ == "__main__":
    main(*sys.argv[1:])
