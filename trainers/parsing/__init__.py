"""English constituency parsing (sec. 6.3 of the paper, Table 4).

A sentence is translated into its tree, written as a sequence of tokens, and
scored by labeled brackets. `trainers/datasets/trees.py` reads the trees.

    parser_config  the data of a run, and the search of parsers
    words          splits text into words, as in the Penn Treebank
    bracketing     precision, recall and F1, counted as in EVALB
    metric         the score in validation and test
    text           implements kt-parse-text
    evaluation     implements kt-parse-evaluate
"""
