"""The ids of the special tokens, and special strings in text.

Every vocabulary of the package starts with these four tokens, so that a batch
padded with zeros is a batch padded with `PAD`.
"""

PAD = 0  # fills a row up to the batch's length; never attended, never scored
BOS = 1  # begins `target_ids`; never predicted
EOS = 2  # ends `source_ids` and `labels`
UNK = 3  # a character outside the vocabulary

SPECIAL_IDS = (PAD, BOS, EOS, UNK)

SPACE = "\u2581"  # SentencePiece's character for the space before a word
# SentencePiece's normalizations. Those with cf make lower case of all letters.
FOLDING = ("nmt_nfkc_cf", "nfkc_cf")
NORMALIZATIONS = ("nmt_nfkc", "nfkc", *FOLDING, "identity")
# A source line of a multilingual model may begin with a code: ">>fra<< Hello".
LANGUAGE_CODE = r"(?s)(>>.*?<<)(.*)"
