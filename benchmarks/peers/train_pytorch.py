"""Measures the speed of training with PyTorch's `torch.nn.Transformer`.

    .venv-peers/pytorch/bin/python benchmarks/peers/train_pytorch.py
        --data=FOLDER [--size=base] [--bfloat16] [--compile]

Batches have pairs of about the same length. --bfloat16 is autocast with float32
weights. --compile needs a C++ compiler.
"""

import math
import random

import measurement
import torch
from torch.nn import functional


def main():
    parser = measurement.training_parser(__doc__)
    parser.add_argument("--bfloat16", action="store_true")
    parser.add_argument("--compile", action="store_true")
    arguments = parser.parse_args()
    torch.set_num_threads(measurement.CORES)
    torch.manual_seed(1)
    step = make_step(arguments)
    steps = (
        (step(batch), int((batch[-1] != measurement.PAD).sum()))
        for batch in make_batches(arguments.data)
    )
    measurement.measure_training(steps, arguments, "torch")


def make_batches(data):
    """Makes batches `(source_ids, target_ids, labels)` in random order."""
    pieces = measurement.read_lines(data / "vocabulary.txt")
    ids = {piece: id for id, piece in enumerate(pieces)}
    sides = [
        [
            [ids[piece] for piece in line.split()]
            for line in measurement.read_lines(
                data / f"train.pieces.{language}"
            )
        ]
        for language in ("en", "de")
    ]
    pairs = list(zip(*sides, strict=True))
    random.Random(1).shuffle(pairs)  # order of pairs of the same length
    pairs.sort(key=lambda pair: max(map(len, pair)))
    groups = [[]]
    for pair in pairs:
        length = max(map(len, pair)) + 1  # with measurement.EOS
        if (len(groups[-1]) + 1) * length > measurement.BATCH_TOKENS:
            groups.append([])
        groups[-1].append(pair)
    random.Random(1).shuffle(groups)
    return [
        (
            pad([[*source, measurement.EOS] for source, _ in group]),
            pad([[measurement.BOS, *target] for _, target in group]),
            pad([[*target, measurement.EOS] for _, target in group]),
        )
        for group in groups
    ]


def pad(rows):
    tensors = [torch.tensor(row) for row in rows]
    return torch.nn.utils.rnn.pad_sequence(tensors, True, measurement.PAD)


class Translator(torch.nn.Module):
    """A model that returns the loss of a batch.

    It has post-norm, one embedding matrix, and sinusoids.
    """

    def __init__(self, num_layers, d_model, d_ff, num_heads, dropout):
        super().__init__()
        self.scale = math.sqrt(d_model)
        self.embedding = torch.nn.Embedding(
            measurement.VOCAB_SIZE, d_model, measurement.PAD
        )
        torch.nn.init.normal_(self.embedding.weight, std=1 / self.scale)
        self.transformer = torch.nn.Transformer(
            d_model,
            num_heads,
            num_layers,
            num_layers,
            d_ff,
            dropout,
            batch_first=True,
        )
        self.dropout = torch.nn.Dropout(dropout)
        columns = torch.arange(0, d_model, 2) * (-math.log(1e4) / d_model)
        angles = torch.arange(measurement.MAX_LENGTH + 1)[:, None] * torch.exp(
            columns
        )
        sinusoids = torch.stack([angles.sin(), angles.cos()], -1).flatten(1)
        self.register_buffer("sinusoids", sinusoids)

    def embed(self, ids):
        embedded = self.embedding(ids) * self.scale
        return self.dropout(embedded + self.sinusoids[: ids.shape[1]])

    def forward(self, source_ids, target_ids, labels):
        is_padding = source_ids == measurement.PAD
        causal = torch.nn.Transformer.generate_square_subsequent_mask(
            target_ids.shape[1]
        )
        states = self.transformer(
            self.embed(source_ids),
            self.embed(target_ids),
            tgt_mask=causal,
            tgt_is_causal=True,
            src_key_padding_mask=is_padding,
            memory_key_padding_mask=is_padding,
        )
        logits = functional.linear(states, self.embedding.weight)
        return functional.cross_entropy(
            logits.flatten(0, 1).float(),
            labels.flatten(),
            ignore_index=measurement.PAD,
            label_smoothing=measurement.LABEL_SMOOTHING,
        )


def make_step(arguments):
    """Returns a function that trains on a batch, and returns its loss."""

    model = Translator(**measurement.SHAPES[arguments.size])
    optimizer = torch.optim.Adam(
        model.parameters(),
        measurement.LEARNING_RATE,
        betas=measurement.ADAM_BETAS,
    )
    if arguments.compile:
        model.compile(dynamic=True)

    def step(batch):
        with torch.autocast("cpu", torch.bfloat16, enabled=arguments.bfloat16):
            loss = model(*batch)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        return loss.item()

    return step


if __name__ == "__main__":
    main()
