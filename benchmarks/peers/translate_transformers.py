"""Measures the speed of translation with a MarianMT model of `transformers`.

    .venv-peers/transformers/bin/python
        benchmarks/peers/translate_transformers.py --model=DIR --text=FILE
        [--beam_size=1] [--max_output_length=32]

Lines of about the same length are translated together, in batches of 32, with a
thread for each core.
"""

import measurement
import torch
import transformers

BATCH_SIZE = 32


def main():
    parser = measurement.translation_parser(__doc__)
    parser.add_argument("--model", required=True)
    arguments = parser.parse_args()
    torch.set_num_threads(measurement.CORES)
    tokenizer = transformers.MarianTokenizer.from_pretrained(arguments.model)
    model = transformers.MarianMTModel.from_pretrained(arguments.model).eval()

    @torch.no_grad()
    def translate(lines):
        order = sorted(range(len(lines)), key=lambda i: len(lines[i]))
        found = {}
        for start in range(0, len(order), BATCH_SIZE):
            rows = order[start : start + BATCH_SIZE]
            batch = [lines[row] for row in rows]
            ids = model.generate(
                **tokenizer(batch, return_tensors="pt", padding=True),
                num_beams=arguments.beam_size,
                length_penalty=measurement.LENGTH_PENALTY,
                max_new_tokens=arguments.max_output_length,
            )
            texts = tokenizer.batch_decode(ids, skip_special_tokens=True)
            found.update(zip(rows, texts, strict=True))
        return [found[row] for row in range(len(lines))]

    measurement.measure_translation(translate, arguments, "transformers")


if __name__ == "__main__":
    main()
