"""CTranslate2: weights and vocabulary, for its own search on CPUs and GPUs.

Its decoder differs from ours in a few ways:

- Score: log-probability / length ^ length_penalty, which is ours with
  `length_normalization="power"`, if EOS is returned and so counted
  (`return_end_token`); ours by default is ((5 + length) / 6) ^ length_penalty.
  With `length_penalty=0` all are the bare log-probability. A beam search ends
  when W hypotheses have finished. Greedy search is identical.
- Length: `min_decoding_length` does not count EOS. Its default of 1 removes EOS
  from the first softmax, which changes the score. `max_decoding_length` is
  one number for all sentences of a call, where ours is source tokens +
  `extra_length` for each of them.
- The caller truncates sources; see `reload`. With learned positions a longer
  source, or an output beyond the last position, is an error of CTranslate2.
- It has no restricted attention: its `sliding_window` is the decoder's alone.
- `return_attention` gives the attention of our alignment layer, of its first
  head or the mean of all heads. Row t is of the step that emits token t and
  reads token t - 1: the alignment of a token is in the row after its own, which
  the last token has with `return_end_token`. In a pre-norm model without a
  guided head it is in its own row.
- `precision` is how weights are stored. The type of the computation depends on
  the CPU: `ctranslate2.get_supported_compute_types("cpu")` lists the types that
  it supports, and `Translator.compute_type` names the one that is used.
- The tokens of languages are written by the caller: `export.json` says in
  `language_places` where, and in `language_ids` which. The output's is
  the `target_prefix`, whose probability does not count, either. If one stands
  behind the source, the caller writes EOS, too.
- The shortlist of the translator, if it has one, is `vmap.txt`:
  `translate_batch(..., use_vmap=True)` uses it.
"""

from keras_transformer.translation.conversion import convert
from savedmodel.formats import Export, save_vocabulary

MAX_INPUT_LENGTH = 1024  # at which CTranslate2 truncates sources by default


def write(export: Export) -> None:
    """Writes the model, its vocabulary and the tokenizer; see `formats`."""
    translator, directory = export.translator, export.directory
    longest = translator.max_source_length + translator.decoding.extra_length
    convert(
        translator.model,
        translator.tokenizer,
        translator.decoding,
        translator.languages,
        max(MAX_INPUT_LENGTH, longest) + 1,
        directory,
        export.options.precision,
    )
    save_vocabulary(translator.tokenizer, directory)
    if translator.shortlist is not None:
        path = directory / "vmap.txt"
        translator.shortlist.write(path, translator.tokenizer)
