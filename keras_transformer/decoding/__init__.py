"""Search for output sequences: greedy, beam (sec. 6.1), sampling.

Nothing here knows a model. The caller passes a function

    step(ids, cache, index) -> (logits, cache)

    ids     int32 `[N]`, the last token of each hypothesis; BOS at position 0
    cache   any nest of tensors whose first axis is N
    index   int32 scalar, the position of `ids`, 0 for BOS
    logits  float32 `[N, V]`, they score the token that follows `ids`

with N = B for `greedy_search` and `sample`, and N = B * W for `beam_search`:
the W hypotheses of a sentence are adjacent rows. `step` is a closure over
values that do not change between positions, such as the projected encoder
output. A cache that is not such a nest needs a function that reorders it.
`search` takes the rules for all sentences as a `DecodingConfig`, and those for
single sentences as `Constraints`.

Choices that systems make differently:

- Score: log-probability / ((5 + length) / 6) ^ length_penalty (Wu et al. 2016,
  the paper's reference 38). The length includes EOS. With
  `length_normalization="power"` the divisor is length ^ length_penalty.
- Log-probabilities are the model's own, over all V tokens. PAD and BOS are
  never emitted, and EOS only once the length reaches `min_length`. The
  probability of these tokens is not redistributed to the others.
- The length limit is one number for each sentence, EOS included. A hypothesis
  that reaches it without EOS is returned as it is, without EOS.
- A sentence whose search has ended is frozen while the others go on, so a
  result never depends on the rest of the batch. Rows that only pad the batch
  have the limit 0 and are not searched.
- `no_repeat_ngram` forbids a token that would complete an n-gram that the
  hypothesis already has. EOS never completes such an n-gram.
- If these rules leave no token (`no_repeat_ngram=1` with a large
  `min_length`), the hypothesis is dropped: no tokens, score and log-probability
  `MISSING_SCORE`.
- A sentence fails if its logits at some position contain NaN or +inf, or only
  -inf, or if a forced token is not in the vocabulary. Its scores and
  log-probabilities are then NaN, and its ids `PAD`. The other sentences of the
  batch are not affected.

The search computes in float32, whatever the dtype of the logits.
"""

from keras_transformer.decoding.rules import MISSING_SCORE as MISSING_SCORE
from keras_transformer.decoding.rules import UNCONSTRAINED as UNCONSTRAINED
from keras_transformer.decoding.rules import UNFINISHED as UNFINISHED
from keras_transformer.decoding.rules import Constraints as Constraints
from keras_transformer.decoding.rules import SearchResult as SearchResult
from keras_transformer.decoding.searches import beam_search as beam_search
from keras_transformer.decoding.searches import greedy_search as greedy_search
from keras_transformer.decoding.searches import sample as sample
from keras_transformer.decoding.searches import search as search
