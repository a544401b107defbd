// An ONNX export in JavaScript. The whole search is in the file: one call
// returns the best ids, so that nothing is left but to segment and to join.

const PAD = 0;
const EOS = 2;

// Returns a function from a sentence to its translation, and whether the
// sentence was truncated. `pieces` has loaded the export's tokenizer.model;
// `description` is the content of its export.json, `model` its model.onnx.
export async function makeTranslator(ort, pieces, description, model) {
  const isPlain = "tokenizer.model" in description.sha256 &&
    !("tokenizer.segments.model" in description.sha256);
  const places = Object.keys(description.language_places);
  if (description.format !== "onnx" || !isPlain || places.length) {
    throw new Error(
      "expected an export of format=onnx with one vocabulary, without case" +
        " marks, imported tables of ids and tokens of languages",
    );
  }
  ort.env.wasm.numThreads = 1;
  const session = await ort.InferenceSession.create(model);
  return async (text) => {
    const row = Int32Array.of(...pieces.encodeIds(text), EOS);
    const source_ids = new ort.Tensor("int32", row, [1, row.length]);
    const { ids, truncated } = await session.run({ source_ids });
    const best = ids.data.subarray(0, ids.dims[2]); // of [N, W, T]
    const tokens = [...best].filter((id) => id !== PAD && id !== EOS);
    return {
      translation: pieces.decodeIds(tokens).trim(),
      truncated: Boolean(truncated.data[0]),
    };
  };
}
