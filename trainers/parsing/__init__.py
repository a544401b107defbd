"""English constituency parsing (sec. 6.3 of the paper, Table 4).

A sentence is translated into its tree, written as a sequence of tokens, and
scored by labeled brackets. `trainers/datasets/trees.py` reads the trees.

    config      the data of a run, and how parsers decode
    words       text to words, as in the Penn Treebank
    bracketing  precision, recall and F1, as EVALB counts
    metric      the score of validation and test
    text        the work of kt-parse-text
    evaluation  the work of kt-parse-evaluate
"""
