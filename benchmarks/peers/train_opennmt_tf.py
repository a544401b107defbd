"""Measures the speed of training with OpenNMT-tf's own trainer.

.venv-peers/opennmt_tf/bin/python benchmarks/peers/train_opennmt_tf.py
    --data=FOLDER [--size=base]
"""

import os
import pathlib
import tempfile

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")

import measurement
import opennmt
import tensorflow as tf
from opennmt import training


def main():
    arguments = measurement.training_parser(__doc__).parse_args()
    tf.config.threading.set_intra_op_parallelism_threads(measurement.CORES)
    tf.config.threading.set_inter_op_parallelism_threads(measurement.CORES)
    training.Trainer = TimedTrainer  # for `Runner`
    with tempfile.TemporaryDirectory() as directory:
        config = make_config(arguments, pathlib.Path(directory))
        model = make_model(**measurement.SHAPES[arguments.size])
        opennmt.Runner(model, config, seed=1).train()
    measurement.print_rates(TimedTrainer.parts[arguments.skip :], "OpenNMT-tf")


class TimedTrainer(training.Trainer):
    """OpenNMT-tf's trainer, which times its steps.

    Attributes:
        parts: As in `print_rates`.
    """

    parts = []

    def __init__(self, *arguments, **options):
        super().__init__(*arguments, **options)
        self._tokens = tf.Variable(0, trainable=False)

    def _accumulate_gradients(self, batch):
        super()._accumulate_gradients(batch)
        _, labels = self._model.split_features_labels(batch)
        self._tokens.assign_add(tf.reduce_sum(labels["length"]))

    def _steps(self, dataset, accum_steps=1):
        clock = measurement.Clock()
        for loss in super()._steps(dataset, accum_steps):
            tokens = int(self._tokens)  # waits for the step
            self._tokens.assign(0)
            self.parts.append(clock.lap() | {"target_tokens": tokens})
            yield loss
            clock.lap()  # leaves out reports and checkpoints


def make_model(num_layers, d_model, d_ff, num_heads, dropout):
    """Makes OpenNMT-tf's Transformer: post-norm, one embedding matrix."""
    embedders = [
        opennmt.inputters.WordEmbedder(embedding_size=d_model) for _ in range(2)
    ]
    return opennmt.models.Transformer(
        *embedders,
        num_layers=num_layers,
        num_units=d_model,
        num_heads=num_heads,
        ffn_inner_dim=d_ff,
        dropout=dropout,
        attention_dropout=dropout,
        ffn_dropout=dropout,
        share_embeddings=opennmt.models.EmbeddingsSharingLevel.ALL,
        pre_norm=False,
    )


def make_config(arguments, directory):
    """Makes OpenNMT-tf's configuration, and its vocabulary file."""
    vocabulary = directory / "vocabulary"
    pieces = measurement.read_lines(arguments.data / "vocabulary.txt")
    del pieces[measurement.UNK]  # OpenNMT-tf adds it at the end
    vocabulary.write_text("".join(f"{piece}\n" for piece in pieces), "utf-8")
    beta_1, beta_2 = measurement.ADAM_BETAS
    return {
        "model_dir": str(directory / "model"),
        "data": {
            "train_features_file": str(arguments.data / "train.pieces.en"),
            "train_labels_file": str(arguments.data / "train.pieces.de"),
            "source_vocabulary": str(vocabulary),
            "target_vocabulary": str(vocabulary),
        },
        "params": {
            "optimizer": "Adam",
            "optimizer_params": {"beta_1": beta_1, "beta_2": beta_2},
            "learning_rate": measurement.LEARNING_RATE,
            "label_smoothing": measurement.LABEL_SMOOTHING,
            "average_loss_in_time": True,  # over tokens
        },
        "train": {
            "batch_type": "tokens",
            "batch_size": measurement.BATCH_TOKENS,
            "effective_batch_size": None,
            "length_bucket_width": 2,
            "maximum_features_length": measurement.MAX_LENGTH,
            "maximum_labels_length": measurement.MAX_LENGTH,
            "max_step": arguments.skip + arguments.steps,
        },
    }


if __name__ == "__main__":
    main()
