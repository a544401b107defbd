"""The score of MetricX-24, for `kt-evaluate --score_command`.

    METRICX/bin/python examples/metricx_score.py SOURCE OUTPUT REFERENCE

METRICX is the environment of github.com/google-research/metricx, whose
repository is the current directory or in PYTHONPATH. It reads and writes JSON,
a line for each sentence. The score is the mean of its predictions, errors in
[0, 25]: lower is better. More arguments are passed to it, such as
--model_name_or_path=google/metricx-24-hybrid-large-v2p6.
"""

import json
import pathlib
import subprocess
import sys
import tempfile

FIELDS = "source", "hypothesis", "reference"
OPTIONS = [
    "--tokenizer=google/mt5-xl",
    "--model_name_or_path=google/metricx-24-hybrid-xl-v2p6",
    "--max_input_length=1536",
    "--batch_size=1",
]


def main(arguments):
    paths, options = arguments[:3], arguments[3:]
    columns = [read_lines(path) for path in paths]
    rows = [
        dict(zip(FIELDS, row, strict=True))
        for row in zip(*columns, strict=True)
    ]
    with tempfile.TemporaryDirectory() as folder:
        given, found = (pathlib.Path(folder, n) for n in ("in", "out"))
        given.write_text("".join(json.dumps(row) + "\n" for row in rows))
        module = [sys.executable, "-m", "metricx24.predict"]
        files = [f"--input_file={given}", f"--output_file={found}"]
        # Later options override earlier ones.
        subprocess.run([*module, *OPTIONS, *options, *files], check=True)
        scores = [json.loads(x)["prediction"] for x in read_lines(found)]
    print(f"MetricX: {sum(scores) / len(scores):.4f}")


def read_lines(path):
    return pathlib.Path(path).read_text("utf-8").removesuffix("\n").split("\n")


if __name__ == "__main__":
    main(sys.argv[1:])
