"""CTranslate2: weights and vocabulary, for its own search on CPUs and GPUs.

Its decoder differs from ours:

- Score: log-probability / length ^ length_penalty, which is ours with
  `length_normalization="power"`, if EOS is returned and so counted
  (`return_end_token`); ours by default is ((5 + length) / 6) ^ length_penalty.
  A beam search ends when W hypotheses have finished. Greedy search is
  identical.
- Length: `min_decoding_length` does not count EOS. Its default of 1 removes EOS
  from the first softmax, which changes the score. `max_decoding_length` is one
  number for all sentences of a call; ours depends on the source.
- The caller truncates sources; see `reload`. With learned positions a longer
  source, or an output beyond the last position, is an error of CTranslate2.
- `return_attention` gives the attention of our alignment layer: its first head,
  or the mean of all heads. Row t belongs to the step that reads token t - 1 and
  emits token t. The alignment of a token is in the row after its own, which
  `return_end_token` adds for the last token; in a pre-norm model without a
  guided head it is in its own row.
- `precision` is how weights are stored. What the CPU computes in is one of
  `ctranslate2.get_supported_compute_types("cpu")`: `Translator.compute_type`.
- The caller writes the tokens of languages: `language_places` in `export.json`
  says where, `language_ids` which. The output's token is the `target_prefix`,
  whose probability does not count here, either. After a token behind the
  source the caller writes EOS, too.
- The translator's shortlist, if any, is `vmap.txt`:
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
