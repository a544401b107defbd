"""Symmetrizes word links of both directions: grow-diag-final-and.

    python examples/symmetrize_links.py FORWARD REVERSE > links.txt

Both files have a line for each pair, with links such as 0-0 1-2, always source
word first: eflomal writes both at once. An aligner that reads the languages in
the other order gives other links. Those that both have are right most often;
others are added if they continue these (Koehn, Och and Marcu 2003; Moses).
"""

import sys

NEIGHBORS = [(i, j) for i in (-1, 0, 1) for j in (-1, 0, 1) if i or j]


def symmetrize(forward, reverse):
    """Links of a pair from those of both directions, sets of (source, target).

    Starts with the intersection. grow-diag: a link beside a chosen one, also
    diagonally, is added if one of its words has none. final-and: then the rest,
    if neither word has one.
    """
    chosen = forward & reverse
    union = forward | reverse
    sources, targets = ({link[side] for link in chosen} for side in (0, 1))

    def add(link):
        chosen.add(link)
        sources.add(link[0])
        targets.add(link[1])

    grows = True
    while grows:
        grows = False
        for source, target in sorted(chosen):
            for i, j in NEIGHBORS:
                link = source + i, target + j
                if link in union - chosen and (
                    link[0] not in sources or link[1] not in targets
                ):
                    add(link)
                    grows = True
    for links in (forward, reverse):
        for link in sorted(links - chosen):
            if link[0] not in sources and link[1] not in targets:
                add(link)
    return chosen


def read_line(line):
    """The links of a line."""
    return {tuple(map(int, link.split("-"))) for link in line.split()}


def main(forward_path, reverse_path):
    with open(forward_path) as forward, open(reverse_path) as reverse:
        for lines in zip(forward, reverse, strict=True):
            links = symmetrize(*map(read_line, lines))
            print(" ".join(f"{i}-{j}" for i, j in sorted(links)))


if __name__ == "__main__":
    main(*sys.argv[1:])
