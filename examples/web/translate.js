// Translates the lines of standard input, in Node.js:
//
//     npm install
//     node translate.js EXPORT < source.txt > translation.txt

import { readFileSync } from "node:fs";
import * as ort from "onnxruntime-web";
import sentencepiece from "sentencepiece-js";
import { makeTranslator } from "./translator.js";

async function main(folder = "export") {
  const description = readFileSync(`${folder}/export.json`, "utf8");
  const pieces = new sentencepiece.SentencePieceProcessor();
  await pieces.load(`${folder}/tokenizer.model`);
  const translate = await makeTranslator(
    ort,
    pieces,
    JSON.parse(description),
    readFileSync(`${folder}/model.onnx`),
  );
  const lines = readFileSync(0, "utf8").replace(/\n$/, "").split("\n");
  for (const [index, line] of lines.entries()) {
    const { translation, truncated } = await translate(line);
    console.log(translation);
    if (truncated) console.error(`line ${index + 1}: truncated`);
  }
}

// sentencepiece-js would print its whole source with an error.
main(...process.argv.slice(2)).catch((error) => {
  console.error(error.message);
  process.exitCode = 1;
});
