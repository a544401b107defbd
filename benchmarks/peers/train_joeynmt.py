"""Measures the speed of training with JoeyNMT's own trainer.

    .venv-peers/joeynmt/bin/python benchmarks/peers/train_joeynmt.py
        --data=FOLDER [--size=base]

It computes in float32 on a CPU: its half precision is for GPUs.
"""

import pathlib
import tempfile

import measurement
import torch
from joeynmt.config import parse_global_args, set_validation_args
from joeynmt.prediction import prepare
from joeynmt.training import TrainManager


def main():
    arguments = measurement.training_parser(__doc__).parse_args()
    torch.set_num_threads(measurement.CORES)
    with tempfile.TemporaryDirectory() as directory:
        config = parse_global_args(make_config(arguments, directory))
        model, train_data, valid_data, _ = prepare(config, 0, "train")
        trainer = TimedTrainer(
            rank=0,
            model=model,
            model_dir=pathlib.Path(directory),
            device=config.device,
            autocast=config.autocast,
            train_args=config.train,
            dev_args=set_validation_args(config.test),
        )
        trainer.train_and_validate(train_data, valid_data)
    measurement.print_rates(trainer.parts[arguments.skip :], "joeynmt")


class TimedTrainer(TrainManager):
    """JoeyNMT's trainer, which times its steps and does not validate.

    Attributes:
        parts: As in `print_rates`. A step ends when the next one starts.
    """

    def __init__(self, **options):
        super().__init__(**options)
        self.parts, self._tokens = [], None

    def _train_step(self, batch):
        if self._tokens is None:
            self._clock = measurement.Clock()
        else:
            lap = self._clock.lap()
            self.parts.append(lap | {"target_tokens": self._tokens})
        self._tokens = int(batch.ntokens)
        return super()._train_step(batch)

    def _validate(self, valid_data):
        pass


def make_config(arguments, directory):
    """Makes JoeyNMT's configuration: post-norm, one embedding matrix."""
    shape, data = measurement.SHAPES[arguments.size], arguments.data
    side = {
        "level": "bpe",
        "lowercase": False,
        "max_length": measurement.MAX_LENGTH,
        "voc_file": str(data / "vocabulary.txt"),
        "tokenizer_type": "sentencepiece",
        "tokenizer_cfg": {
            "model_file": str(data / "tokenizer.model"),
            "pretokenizer": "none",
        },
    }
    stack = {
        "type": "transformer",
        "num_layers": shape["num_layers"],
        "num_heads": shape["num_heads"],
        "embeddings": {
            "embedding_dim": shape["d_model"],
            "scale": True,
            "dropout": shape["dropout"],
        },
        "hidden_size": shape["d_model"],
        "ff_size": shape["d_ff"],
        "dropout": shape["dropout"],
        "layer_norm": "post",
    }
    return {
        "name": "speed",
        "model_dir": directory,
        "use_cuda": False,
        "data": {
            "train": str(data / "train"),
            "dev": str(data / "test_2016_flickr"),  # required by JoeyNMT
            "dataset_type": "plain",
            "src": side | {"lang": "en"},
            "trg": side | {"lang": "de"},
        },
        "training": {
            "optimizer": "adam",
            "adam_betas": list(measurement.ADAM_BETAS),
            "learning_rate": measurement.LEARNING_RATE,
            "scheduling": "warmupinversesquareroot",
            "learning_rate_warmup": 2000,
            "normalization": "tokens",
            "label_smoothing": measurement.LABEL_SMOOTHING,
            "batch_type": "token",
            "batch_size": measurement.BATCH_TOKENS,
            # The last update is not timed.
            "updates": arguments.skip + arguments.steps + 1,
            "epochs": 1000,
        },
        "testing": {"batch_size": 32, "batch_type": "sentence"},
        "model": {
            "tied_embeddings": True,
            "tied_softmax": True,
            "encoder": stack,
            "decoder": stack,
        },
    }


if __name__ == "__main__":
    main()
