import gzip
import random

import pytest
from random_trees import random_tree

from trainers.datasets.constituency import (
    leaves,
    read_trees,
    strip,
    write_tree,
)
from trainers.parsing.words import escape_brackets, split_words

WSJ = """
( (S
    (NP-SBJ-1 (DT The) (NN cat) )
    (VP (VBD was)
      (VP (VBN seen)
        (NP (-NONE- *-1) )
        (ADVP-TMP=2 (-NONE- 0) (NP (NN today) ))))
    (. .) ))
( (NP (-NONE- *) ))
(TOP (INTJ (UH Yes)))(FRAG (-LRB- -LRB-))
"""


@pytest.fixture
def read(tmp_path):
    """Reads text as a file of trees; errors name `trees.mrg`."""

    def read_text(text, encoding="utf-8"):
        path = tmp_path / "trees.mrg"
        path.write_bytes(text.encode(encoding))
        return list(read_trees(path))

    return read_text


def test_files_of_the_treebank_are_read_and_stripped(read, tmp_path):
    trees = read(WSJ)
    assert [write_tree(strip(tree)) for tree in trees] == [
        "(TOP (S (NP (DT The) (NN cat)) (VP (VBD was) (VP (VBN seen)"
        " (ADVP (NP (NN today))))) (. .)))",
        "(TOP)",
        "(TOP (INTJ (UH Yes)))",
        "(TOP (FRAG (-LRB- -LRB-)))",
    ]
    assert trees[0].children[0].children[0].label == "NP-SBJ-1"
    zipped = tmp_path / "trees.mrg.gz"
    zipped.write_bytes(gzip.compress(WSJ.encode()))
    assert list(read_trees(zipped)) == trees


def test_what_is_written_is_read_again(read):
    generator = random.Random(4)
    trees = [
        random_tree(generator, [f"w{i}" for i in range(size)])
        for size in (1, 2, 3, 5, 8, 13) * 20
    ]
    assert read("\n".join(map(write_tree, trees))) == trees
    assert len({tree.children for tree in trees}) > 100


@pytest.mark.parametrize(
    "text, line, message",
    [
        ("(S (NN a))\nb", 2, "expected a tree, which begins with '('"),
        ("(S (NN a))\n\n)", 3, "begins with '('. Received: ')'"),
        ("\n(S\n (NN a)\n", 2, "brackets are still open in line 3"),
        ("(S (NP) (NN a))", 1, "Received: '(NP)'"),
        ("(S\n(NN a b))", 2, "Received: '(NN a b)'"),
        ("(S (NN a)\nb)", 2, "Received: '(S (...) b)'"),
        ("(S (NN a (NN b)))", 1, "Received: '(NN a (...))'"),
        ("((S ((NN a))))", 1, "only the outermost bracket may have no label"),
        ("()", 1, "Received: '()'"),
    ],
)
def test_bad_trees_are_refused_with_their_line(read, text, line, message):
    with pytest.raises(ValueError, match=f"trees.mrg, line {line}: ") as error:
        read(text)
    assert message in str(error.value)


def test_bad_files_are_refused(read, tmp_path):
    with pytest.raises(ValueError, match=r"line 2: not UTF-8 .*byte 8 of"):
        read("(S (NN a))\n(S (NN é))", "latin-1")
    path = tmp_path / "trees.gz"
    path.write_bytes(gzip.compress(WSJ.encode())[:-9])
    with pytest.raises(ValueError, match="trees.gz: corrupt gzip file"):
        list(read_trees(path))


def test_depth_has_no_limit(read):
    depth = 3_000
    (tree,) = read("(X " * depth + "(NN a)" + ")" * depth)
    assert [leaf.word for leaf in leaves(strip(tree))] == ["a"]
    assert write_tree(tree).count("(X") == depth


@pytest.mark.parametrize(
    "text, words",
    [
        ("He's at 3:30, with $1,000.", "He 's at 3:30 , with $ 1,000 ."),
        ('"Really?" she said.', "`` Really ? '' she said ."),
        ("\u201cNo,\u201d she \u2018said\u2019.", "`` No , '' she ` said ' ."),
        ("The dogs' bowl isn't big...", "The dogs ' bowl is n't big ..."),
        ("I cannot--won't!", "I can not -- wo n't !"),
        (
            "Mr. Lee [left] (at 5).",
            "Mr. Lee -LSB- left -RSB- -LRB- at 5 -RRB- .",
        ),
        ("  ", ""),
    ],
)
def test_text_is_divided_as_in_the_treebank(text, words):
    assert split_words(text) == words.split()
    assert escape_brackets(words.split()) == words.split()
