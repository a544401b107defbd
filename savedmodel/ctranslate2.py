"""Exports weights and vocabulary for CTranslate2, on CPUs and GPUs.

CTranslate2's search differs from ours:

- Score: log-probability / length ^ length_penalty. With `return_end_token`, the
  length includes EOS, and the score is ours with
  `length_normalization="power"`. By default we divide by
  ((5 + length) / 6) ^ length_penalty, by which `reload` ranks the hypotheses of
  a beam. A beam search ends when W hypotheses have finished. Greedy search is
  identical.
- Length: `min_decoding_length` does not count EOS. Its default of 1 removes EOS
  from the first softmax, which changes the score. `max_decoding_length` is one
  number for all sentences of a call; ours depends on the source.
- The caller truncates sources; see `reload`. With learned positions,
  CTranslate2 raises an error for a source or an output beyond the last one.
- `return_attention` returns the alignment layer's attention: its first head, or
  the mean of all heads. Row t belongs to the step that reads token t - 1 and
  emits token t. The alignment of a token is in the row after its own, which
  `return_end_token` adds for the last token; in a pre-norm model without a
  guided head it is in its own row.
- `precision` is the type of the stored weights. The CPU computes in
  `Translator.compute_type`, one of
  `ctranslate2.get_supported_compute_types("cpu")`.
- The caller adds language tokens: `language_places` in `export.json` has their
  places, `language_ids` their ids. The output's token is the `target_prefix`.
  Its probability is not part of the score, as in our search. If a token follows
  the source, the caller also writes the EOS before it.
- The translator's shortlist, if any, is `vmap.txt`:
  `translate_batch(..., use_vmap=True)` uses it.
"""

from keras_transformer.translation.conversion import convert
from savedmodel.formats import Export, save_vocabulary

MAX_INPUT_LENGTH = 1024  # tokens of a source in CTranslate2, by default


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
