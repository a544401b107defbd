"""Measurements of `compare.py`: the commands, and the rows of its table.

A row names the figures to compare; a figure is a number among the lines that a
command prints. The goals are ratios to the fastest peer.
"""

import dataclasses
import os
import typing

CORES = len(os.sched_getaffinity(0))
TEST_SET = "test_2016_flickr"
SINGLE_LINES = 200  # of the test set, where lines are translated one by one
RECIPE = "multi30k_ende"


class Command(typing.NamedTuple):
    """A process that prints JSON lines.

    Attributes:
        argv: The command line; names in braces are fields of `Places`.
        needs: Names of `SETUPS` that come before.
    """

    argv: str
    needs: tuple[str, ...] = ()


class Setup(typing.NamedTuple):
    """A file that is made once.

    Attributes:
        target: The path that is there when it has been made.
        argv: The command line that makes it.
    """

    target: str
    argv: str


@dataclasses.dataclass(frozen=True)
class Figure:
    """One number among the lines of a command.

    Attributes:
        command: Name in `COMMANDS`.
        label: Name of the measurement in the table.
        key: The number's name in the line.
        where: Other fields of the line, by which it is found.
    """

    command: str
    label: str
    key: str
    where: dict

    def read(self, lines: list[dict]) -> float | None:
        """The number in the lines of a command, or None if it is missing.

        Where a script gives it for quiet times, too, that one is taken.
        """
        for line in lines:
            if all(
                line.get(name) == value for name, value in self.where.items()
            ):
                return line.get(f"{self.key}_quiet") or line[self.key]
        return None


@dataclasses.dataclass(frozen=True)
class Row:
    """A row of the table.

    Attributes:
        title: Name of the comparison.
        unit: Of the numbers.
        ours, peers: Alternatives; the fastest counts.
        goal: The ratio to reach, or None.
        work: GFLOP/s of ours, where the share of `ceiling` is shown.
        ceiling: GFLOP/s of a large matrix product.
        share: The share to reach, in [0, 1].
    """

    title: str
    unit: str
    ours: tuple[Figure, ...]
    peers: tuple[Figure, ...]
    goal: float | None = None
    work: tuple[Figure, ...] = ()
    ceiling: Figure | None = None
    share: float | None = None

    @property
    def figures(self) -> tuple[Figure, ...]:
        """All numbers that the row needs."""
        ceiling = (self.ceiling,) if self.ceiling else ()
        return self.ours + self.peers + self.work + ceiling


_EXPORT = (
    "{ours} -m savedmodel.export --workdir={workdir} --beam_size=4"
    " --length_penalty=0.6 --max_source_length=64"
)
SETUPS = {
    "ct2-tiny": Setup(
        "{work}/ct2-tiny",
        "{onmt} {peers}/peer_onmt.py export --size tiny --out {work}/ct2-tiny",
    )
} | {
    name: Setup(
        f"{{made}}/{name}",
        f"{_EXPORT} --format={name} --output={{made}}/{name}",
    )
    for name in ("saved_model", "onnx", "ctranslate2")
}

_TRAIN = "{ours} benchmarks/train_throughput.py --peers={peers} --data={data}"
_RECIPE = (
    "{ours} benchmarks/recipe_throughput.py --data={data}"
    f" --recipe={RECIPE}"
)
_DECODE = (
    "{ours} benchmarks/decode_throughput.py --peers={peers} --data={data}"
    " --limit=256"
)
_TEXT = (
    "{ours} benchmarks/real_text.py --rounds=1 --workdir={workdir}"
    f" --text={{data}}/{TEST_SET}.en --length_penalty=0.6"
)
_BESIDE = "--xla --ctranslate2={made}/ctranslate2"
_SINGLE = f"--single --limit={SINGLE_LINES}"
_ALIKE = "--beams 4 --as_ctranslate2"
_TORCH = "{torch} {peers}/train_throughput_torch.py"
_BF16 = "--precision=mixed_bfloat16"
# In this order in each round.
COMMANDS = {
    "ceiling": Command("{ours} {peers}/matmul_ceiling.py"),
    "tiny onmt": Command(
        "{onmt} {peers}/peer_onmt.py train --size tiny --steps 15 --skip 6"
    ),
    "tiny joey": Command(
        "{joey} {peers}/peer_joey.py train --size tiny --steps 15 --skip 2"
    ),
    "tiny torch": Command(
        f"{_TORCH} --size tiny --steps 15 --variants eager-fp32 eager-bf16"
    ),
    "tiny torch compiled": Command(
        f"{_TORCH} --size tiny --steps 15 --variants compile-fp32 compile-bf16"
    ),
    "tiny fp32": Command(f"{_TRAIN} --size=tiny --steps=15"),
    "tiny fp32 xla": Command(f"{_TRAIN} --size=tiny --steps=15 --jit_compile"),
    "tiny bf16": Command(f"{_TRAIN} --size=tiny --steps=15 {_BF16}"),
    "tiny bf16 xla": Command(
        f"{_TRAIN} --size=tiny --steps=15 --jit_compile {_BF16}"
    ),
    "recipe": Command(_RECIPE),
    "recipe xla": Command(f"{_RECIPE} --jit_compile"),
    "base onmt": Command(
        "{onmt} {peers}/peer_onmt.py train --size base --steps 4 --skip 6"
    ),
    "base torch": Command(
        f"{_TORCH} --size base --steps 4 --variants eager-fp32 eager-bf16"
    ),
    "base fp32": Command(f"{_TRAIN} --size=base --steps=4"),
    "base bf16": Command(f"{_TRAIN} --size=base --steps=4 {_BF16}"),
    "decode ct2": Command(
        "{torch} {peers}/decode_throughput_ct2.py --size tiny --limit 256"
        " --types float32",
        ("ct2-tiny",),
    ),
    "decode onmt": Command(
        "{onmt} {peers}/peer_onmt.py decode --size tiny --limit 256"
    ),
    "decode xla": Command(_DECODE),
    "decode xla workers": Command(f"{_DECODE} --batches 32 --workers={CORES}"),
    "decode plain": Command(f"{_DECODE} --no-jit_compile"),
    "exports": Command(
        f"{_TEXT} --beams 4 --only export"
        " --exports {made}/saved_model {made}/onnx",
        ("saved_model", "onnx"),
    ),
    "text": Command(f"{_TEXT} {_BESIDE}", ("ctranslate2",)),
    "text single": Command(f"{_TEXT} {_BESIDE} {_SINGLE}", ("ctranslate2",)),
    "text alike": Command(f"{_TEXT} {_BESIDE} {_ALIKE}", ("ctranslate2",)),
    "text alike single": Command(
        f"{_TEXT} {_BESIDE} {_ALIKE} {_SINGLE}", ("ctranslate2",)
    ),
}


def _rate(command, label, variant, key="trg_tok_s"):
    """Of a training script's line."""
    return Figure(command, label, key, {"variant": variant})


def _training_row(size, kind, ours, peers, goal, share=None):
    """The row of a size and type; `ours` are labels and their variants."""
    commands = [f"{size} {variant.replace('-', ' ')}" for _, variant in ours]
    named = list(zip(commands, ours, strict=True))
    return Row(
        title=f"train `{size}` {kind}",
        unit="target tokens/s",
        ours=tuple(_rate(command, *one) for command, one in named),
        peers=peers,
        goal=goal,
        work=tuple(_rate(command, *one, "gflop_s") for command, one in named),
        ceiling=Figure(
            "ceiling", "matrix product", "gflop_s_median", {"type": kind}
        ),
        share=share,
    )


_TINY_ONMT = _rate("tiny onmt", "OpenNMT-tf", "fp32")
_RECIPE_RATES = tuple(
    Figure(command, label, "trg_tok_s", {"size": RECIPE})
    for command, label in (("recipe", "plain"), ("recipe xla", "XLA"))
)
TRAINING_ROWS = {
    "train_tiny_fp32": _training_row(
        "tiny",
        "fp32",
        (("plain", "fp32"), ("XLA", "fp32-xla")),
        (
            _TINY_ONMT,
            _rate("tiny joey", "JoeyNMT", "fp32"),
            _rate("tiny torch", "PyTorch", "eager-fp32"),
            _rate("tiny torch compiled", "PyTorch compiled", "compile-fp32"),
        ),
        goal=2.0,
    ),
    "train_tiny_bf16": _training_row(
        "tiny",
        "bf16",
        (("plain", "bf16"), ("XLA", "bf16-xla")),
        (
            _rate("tiny torch", "PyTorch", "eager-bf16"),
            _rate("tiny torch compiled", "PyTorch compiled", "compile-bf16"),
        ),
        goal=2.8,
    ),
    "train_base_fp32": _training_row(
        "base",
        "fp32",
        (("plain", "fp32"),),
        (
            _rate("base onmt", "OpenNMT-tf", "fp32"),
            _rate("base torch", "PyTorch", "eager-fp32"),
        ),
        goal=1.35,
        share=0.75,
    ),
    "train_base_bf16": _training_row(
        "base",
        "bf16",
        (("plain", "bf16"),),
        (_rate("base torch", "PyTorch", "eager-bf16"),),
        goal=1.7,
        share=0.68,
    ),
    # 26,000 source and target tokens/s, 51.1 % of them target tokens, beside
    # 9,330 target tokens/s of `tiny`, and beside OpenNMT-tf's 5,547.
    "train_recipe": Row(
        title=f"train with `{RECIPE}.flags`, by `tiny` fp32",
        unit="target tokens/s",
        ours=_RECIPE_RATES,
        peers=(
            _rate("tiny fp32", "ours, `tiny`", "fp32"),
            _rate("tiny fp32 xla", "ours, `tiny`, XLA", "fp32-xla"),
        ),
        goal=1.43,
    ),
    "train_recipe_onmt": Row(
        title=f"train with `{RECIPE}.flags`, by OpenNMT-tf",
        unit="target tokens/s",
        ours=_RECIPE_RATES,
        peers=(_TINY_ONMT,),
        goal=2.4,
    ),
}


def _decoding(command, label, variant, batch, beam):
    where = {"variant": variant, "batch": batch, "beam": beam}
    return Figure(command, label, "sent_s", where)


def _xla_row(batch, beam, goal):
    """XLA beside CTranslate2: a line at once, or all cores with many."""
    at = batch, beam
    alone = _decoding("decode xla", "XLA", "graph-fp32-xla", *at)
    if batch == 1:
        ours = (alone,)
        peers = (
            _decoding("decode ct2", "CTranslate2 1x1", "float32 1x1", *at),
        )
    else:
        several = f"{CORES} workers"
        variant = f"graph-fp32-xla {several}"
        ours = (
            alone,
            _decoding("decode xla workers", f"XLA, {several}", variant, *at),
        )
        peers = (
            _decoding("decode ct2", "CTranslate2 2x1", "float32 2x1", *at),
        )
    return Row(
        title=f"decode `tiny`, XLA, batch {batch}, {SEARCHES[beam]}",
        unit="sentences/s",
        ours=ours,
        peers=peers,
        goal=goal,
    )


def _plain_row(batch, beam, goal):
    at = batch, beam
    label = "OpenNMT-tf SavedModel"
    return Row(
        title=f"decode `tiny`, plain graph, batch {batch}, {SEARCHES[beam]}",
        unit="sentences/s",
        ours=(_decoding("decode plain", "plain", "graph-fp32", *at),),
        peers=(_decoding("decode onmt", label, "SavedModel-fp32", *at),),
        goal=goal,
    )


SEARCHES = {1: "greedy", 4: "beam 4"}
DECODING_ROWS = {
    "decode_xla_1_greedy": _xla_row(1, 1, 1.0),
    "decode_xla_1_beam4": _xla_row(1, 4, 1.0),
    "decode_xla_32_greedy": _xla_row(32, 1, 1.2),
    "decode_xla_32_beam4": _xla_row(32, 4, 1.2),
    "decode_plain_1_greedy": _plain_row(1, 1, 3.0),
    "decode_plain_1_beam4": _plain_row(1, 4, 3.0),
    "decode_plain_32_greedy": _plain_row(32, 1, 2.0),
    "decode_plain_32_beam4": _plain_row(32, 4, 2.0),
}


def _lines(command, label, name, beam):
    """Of a line of `real_text.py`."""
    where = {"name": name, "beam_size": beam}
    return Figure(command, label, "lines_per_second", where)


def _text_row(command, words, beam, workers, goal):
    """Beside CTranslate2 with as many workers."""
    several = f"{workers} worker(s)"
    return Row(
        title=f"real text, {words}, {SEARCHES[beam]}",
        unit="sentences/s",
        ours=(
            _lines(command, "plain", f"this version, {several}", beam),
            _lines(command, "XLA", f"this version, XLA, {several}", beam),
        ),
        peers=(
            _lines(
                command,
                f"CTranslate2 {workers}x1",
                f"CTranslate2, {several}",
                beam,
            ),
        ),
        goal=goal,
    )


_SAME_SEARCH = "the same rules of search"
TEXT_ROWS = {
    "onnx": Row(
        title="ONNX Runtime by our SavedModel, real text, batch 32, beam 4",
        unit="sentences/s",
        ours=(_lines("exports", "ONNX Runtime", "export onnx", 4),),
        peers=(_lines("exports", "SavedModel", "export saved_model", 4),),
        goal=1.2,
    ),
    "text_beam4": _text_row("text", "all at once", 4, CORES, 1.0),
    "text_greedy": _text_row("text", "all at once", 1, CORES, 1.0),
    "text_alike_beam4": _text_row(
        "text alike", f"all at once, {_SAME_SEARCH}", 4, CORES, 1.0
    ),
    "single_beam4": _text_row("text single", "one by one", 4, 1, 0.8),
    "single_greedy": _text_row("text single", "one by one", 1, 1, 0.8),
    "single_alike_beam4": _text_row(
        "text alike single", f"one by one, {_SAME_SEARCH}", 4, 1, 0.8
    ),
}
ROWS = TRAINING_ROWS | DECODING_ROWS | TEXT_ROWS
