"""Exports a work directory as a SavedModel and calls it as a server would.

    python examples/serve.py WORKDIR OUTPUT < sentences.txt

Once exported, the model needs TensorFlow and TensorFlow Text alone: `answer`
imports nothing of this package. `docs/exports.md` has TensorFlow Serving.
"""

import contextlib
import pathlib
import sys


def export(workdir, output):
    """Writes OUTPUT/1 unless it is there; it is verified before it appears."""
    if not pathlib.Path(output, "1").exists():
        from savedmodel import export

        with contextlib.redirect_stdout(sys.stderr):  # translations go there
            export.main(
                [
                    "--format=saved_model",
                    f"--workdir={workdir}",
                    f"--output={output}",
                ]
            )


def answer(output, sentences):
    """Yields each sentence's translation, its score, and the second best."""
    import tensorflow as tf
    import tensorflow_text  # noqa: F401  its operations read the text

    model = tf.saved_model.load(f"{output}/1")
    found = model.signatures["n_best"](text=tf.constant(sentences))
    for texts, scores in zip(
        found["hypotheses"].numpy(), found["scores"].numpy(), strict=True
    ):
        best, *others = (text.decode("utf-8") for text in texts)
        yield best, float(scores[0]), others[0] if others else ""


def main(workdir, output, lines):
    export(workdir, output)
    sentences = [line.rstrip("\n") for line in lines]
    for best, score, second in answer(output, sentences):
        print(f"{best}\t{score:.3f}\t{second}")


if __name__ == "__main__":
    if len(sys.argv) != 3:
        raise SystemExit("usage: serve.py WORKDIR OUTPUT < sentences.txt")
    main(*sys.argv[1:], sys.stdin)
