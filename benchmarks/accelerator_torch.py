"""The stages of accelerator.py in PyTorch, with a plain model.

It has the same sizes, parameters and dropout as our model, bfloat16 by
autocast, fused AdamW, and one batch on the device. Attention is PyTorch's fused
function with a mask of the source's padding, which batches of a corpus need.

The stage `generate` is the search of transformers with a model of base's sizes.
"""

import itertools

import torch
from accelerator import (
    LABEL_SMOOTHING,
    begin,
    config_of,
    emit,
    emit_speed,
    measure_product,
    median_seconds,
    speed_cases,
)
from formulas import count_parameters
from torch import nn
from torch.nn import functional

from keras_transformer.text.vocabulary import PAD

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"


class Attention(nn.Module):
    def __init__(self, config):
        super().__init__()
        size, self.heads = config.d_model, config.num_heads
        self.query, self.key, self.value, self.output = (
            nn.Linear(size, size, bias=False) for _ in range(4)
        )

    def forward(self, x, memory, mask=None):
        query, key, value = (
            projected.unflatten(-1, (self.heads, -1)).transpose(1, 2)
            for projected in (
                self.query(x),
                self.key(memory),
                self.value(memory),
            )
        )
        heads = functional.scaled_dot_product_attention(
            query, key, value, attn_mask=mask, is_causal=mask is None
        )
        return self.output(heads.transpose(1, 2).flatten(2))


class Layer(nn.Module):
    """A layer of the encoder, or of the decoder if it reads the source."""

    def __init__(self, config, reads_source):
        super().__init__()
        size = config.d_model
        self.attention = Attention(config)
        self.cross_attention = Attention(config) if reads_source else None
        self.feed_forward = nn.Sequential(
            nn.Linear(size, config.d_ff),
            nn.ReLU(),
            nn.Linear(config.d_ff, size),
        )
        self.norms = nn.ModuleList(
            nn.LayerNorm(size) for _ in range(3 if reads_source else 2)
        )
        self.dropout = nn.Dropout(config.dropout)

    def forward(self, x, mask, memory=None):
        own = None if memory is not None else mask  # None: causal
        x = self.norms[0](x + self.dropout(self.attention(x, x, own)))
        if memory is not None:
            read = self.cross_attention(x, memory, mask)
            x = self.norms[1](x + self.dropout(read))
        return self.norms[-1](x + self.dropout(self.feed_forward(x)))


class Transformer(nn.Module):
    """A Transformer whose output is the loss of a batch."""

    def __init__(self, config, length):
        super().__init__()
        size = self.size = config.d_model
        self.embedding = nn.Embedding(config.vocab_size, size)
        nn.init.normal_(self.embedding.weight, std=size**-0.5)
        angles = torch.arange(length)[:, None] * 10_000.0 ** (
            -torch.arange(0, size, 2) / size
        )
        pairs = torch.stack([angles.sin(), angles.cos()], -1)
        self.register_buffer("positions", pairs.flatten(1))
        self.dropout = nn.Dropout(config.dropout)
        self.encoder, self.decoder = (
            nn.ModuleList(
                Layer(config, reads_source) for _ in range(config.num_layers)
            )
            for reads_source in (False, True)
        )

    def embed(self, ids):
        return self.dropout(
            self.embedding(ids) * self.size**0.5 + self.positions
        )

    def forward(self, source, target, labels):
        mask = (source != PAD)[:, None, None]
        memory, x = self.embed(source), self.embed(target)
        for layer in self.encoder:
            memory = layer(memory, mask)
        for layer in self.decoder:
            x = layer(x, mask, memory)
        logits = functional.linear(x, self.embedding.weight)
        return functional.cross_entropy(
            logits.flatten(0, 1).float(),
            labels.flatten(),
            ignore_index=PAD,
            label_smoothing=LABEL_SMOOTHING,
        )


def main():
    name = torch.cuda.get_device_name() if DEVICE == "cuda" else "CPU"
    case = begin(
        f"device: {name} (PyTorch {torch.__version__})", DEVICE == "cuda"
    )
    if case["stage"] == "generate":
        generate(case["small"])
        return
    product = measure_product(
        "PyTorch",
        lambda size: torch.randn(2, size, size, device=DEVICE).bfloat16(),
        lambda product: product[0, 0].item(),
        case["small"],
    )
    for compiled in (True, False):
        for size in speed_cases(case):
            measure(*size, compiled, product)


def measure(name, config, rows, length, compiled, product):
    """Prints the row of a training step."""
    torch.manual_seed(1)
    model = Transformer(config, length).to(DEVICE)
    parameters = sum(p.numel() for p in model.parameters())
    if parameters != count_parameters(config):
        raise SystemExit(f"{parameters:,} parameters: not the same model")
    optimizer = torch.optim.AdamW(
        model.parameters(),
        lr=1e-4,
        betas=(0.9, 0.98),
        eps=1e-9,
        weight_decay=0.0,
        fused=True,
    )
    loss_of = torch.compile(model, dynamic=False) if compiled else model
    shape = (3, rows, length)
    batch = torch.randint(4, config.vocab_size, shape, device=DEVICE)

    def run(number):
        for _ in range(number):
            with torch.autocast(DEVICE, torch.bfloat16):
                loss = loss_of(*batch)
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
        if not torch.isfinite(loss):  # waits for the device
            raise SystemExit(f"the loss is not finite: {loss}")

    seconds = median_seconds(run, 20 if DEVICE == "cuda" else 1)
    system = "PyTorch, torch.compile" if compiled else "PyTorch"
    emit_speed(system, name, config, rows, length, seconds, product)


def generate(small):
    """Prints the sentences per second of `generate` with random weights."""
    from transformers import MarianConfig, MarianMTModel

    torch.manual_seed(1)
    config, length = config_of("base", small), 8 if small else 30
    both = {
        "layers": config.num_layers,
        "attention_heads": config.num_heads,
        "ffn_dim": config.d_ff,
    }
    sizes = {
        f"{side}_{name}": value
        for side, (name, value) in itertools.product(
            ("encoder", "decoder"), both.items()
        )
    }
    model = MarianMTModel(
        MarianConfig(
            vocab_size=config.vocab_size,
            d_model=config.d_model,
            pad_token_id=0,
            eos_token_id=2,
            decoder_start_token_id=0,
            forced_eos_token_id=None,
            scale_embedding=True,
            activation_function="relu",
            **sizes,
        )
    )
    model = model.to(DEVICE, torch.bfloat16).eval()
    for size, beam_size in itertools.product(
        (8,) if small else (64, 256, 512), (1, 4)
    ):
        shape = (size, length)
        ids = torch.randint(4, config.vocab_size, shape, device=DEVICE)

        def run(number, ids=ids, beam_size=beam_size):
            for _ in range(number):
                with torch.inference_mode():
                    found = model.generate(
                        ids,
                        attention_mask=torch.ones_like(ids),
                        num_beams=beam_size,
                        do_sample=False,
                        min_new_tokens=length,
                        max_new_tokens=length,
                    )
                if found.cpu().shape[1] != length + 1:  # waits for the device
                    raise SystemExit(f"other lengths: {found.shape}")

        seconds = median_seconds(run, 1, rounds=2)
        row = {"beam": beam_size, "sentences": size}
        row |= {"sentences/s": round(size / seconds, 1)}
        row |= {"ms a batch": round(1e3 * seconds, 1)}
        emit(f"search, transformers, outputs of {length} tokens", row)


if __name__ == "__main__":
    main()
