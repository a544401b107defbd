"""English constituency parsing (sec. 6.3 of the paper, Table 4).

A sentence is translated into its tree, written as a sequence of tokens
(`linearization`), and scored by labeled brackets (`bracketing`). Without a
treebank at hand, the trees of `trainers/data/treebank.mrg.xz` are learned.

    trees          constituency trees; the files of the Penn Treebank
    words          text to words, as in the Penn Treebank
    config         the data of a run, and how parsers decode
    linearization  trees as sequences of tokens; repair
    bracketing     precision, recall and F1, as EVALB counts
    metric         the score of validation and test
    corpus         the trees of a run as pairs of a sentence and a sequence
"""
