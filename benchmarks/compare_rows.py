"""The systems that `compare.py` measures, and the rows of its tables.

A system is a script of benchmarks/peers with options. A variant of this
package, such as another work directory, is also a system. `{folder}` and
`{workdir}` are replaced by the options of `compare.py`.
"""

import typing

TEST_SET = "test_2016_flickr"
SINGLE_LINES = 200  # lines of the test set that are translated one by one
ONEDNN_OFF = "TF_ENABLE_ONEDNN_OPTS=0"
WITHOUT_ONEDNN = "this package, oneDNN off"
ENGINE = "this package, engine CTranslate2"
CEILING = "ceiling"  # not a system: the speed that matrix products allow


class System(typing.NamedTuple):
    """A system, and how it is measured.

    Attributes:
        script: Name of a script in benchmarks/peers.
        environment: Folder in .venv-peers, or None for this package's own
            environment.
        options: Options of the script.
        is_reduced: Whether it computes in less than float32, so that its output
            differs.
        engine: The engine of the search, if this package translates.
        variables: Environment variables, as "NAME=value". A variant of this
            package with variables is measured only if `--systems` names it.
    """

    script: str
    environment: str | None = None
    options: tuple[str, ...] = ()
    is_reduced: bool = False
    engine: str = "native"
    variables: tuple[str, ...] = ()

    @property
    def is_ours(self) -> bool:
        return self.script in ("train_ours", "translate_ours")


class Table(typing.NamedTuple):
    """Measurements of one kind.

    Attributes:
        heading: The measured quantity, with its unit.
        rate: Key of the number in the line that a script prints.
        options: Options of every script.
        trial: Options for a short run of a script.
        systems: The systems, by name.
    """

    heading: str
    rate: str
    options: tuple[str, ...]
    trial: tuple[str, ...]
    systems: dict[str, System]


class Row(typing.NamedTuple):
    """Systems that do the same work.

    Attributes:
        table: The table of the row.
        title: The work that the systems do.
        options: Options of every script.
        systems: Names of the systems that can do the work.
    """

    table: Table
    title: str
    options: tuple[str, ...]
    systems: tuple[str, ...]


TRAINING = Table(
    heading="training, target tokens/s",
    rate="target_tokens_per_second",
    options=("--data={folder}/data",),
    trial=("--skip=1", "--steps=1"),
    systems={
        "this package": System("train_ours"),
        WITHOUT_ONEDNN: System("train_ours", variables=(ONEDNN_OFF,)),
        "OpenNMT-tf": System("train_opennmt_tf", "opennmt_tf"),
        "PyTorch": System("train_pytorch", "pytorch"),
        "PyTorch, compiled": System("train_pytorch", "pytorch", ("--compile",)),
        "JoeyNMT": System("train_joeynmt", "joeynmt"),
        CEILING: System("ceiling"),
    },
)


def translators(workdir, export):
    """Returns the systems that translate with a work directory or an export."""
    ours = "translate_ours", None
    ctranslate2 = "translate_ctranslate2", "ctranslate2"
    workdir, model = f"--workdir={workdir}", f"--model={export}"
    return {
        "this package": System(*ours, (workdir,)),
        WITHOUT_ONEDNN: System(*ours, (workdir,), variables=(ONEDNN_OFF,)),
        "this package, XLA": System(*ours, (workdir, "--jit_compile")),
        "this package, bfloat16": System(
            *ours, (workdir, "--precision=bfloat16"), is_reduced=True
        ),
        ENGINE: System(*ours, (workdir, "--engine=ctranslate2"), engine=ENGINE),
        f"{ENGINE} int8": System(
            *ours,
            (workdir, "--engine=ctranslate2", "--compute_type=int8"),
            is_reduced=True,
            engine=ENGINE,
        ),
        "CTranslate2": System(*ctranslate2, (model,)),
        "CTranslate2 int8": System(
            *ctranslate2, (model, "--compute_type=int8"), is_reduced=True
        ),
    }


TRANSLATION = Table(
    heading="translation, lines/s",
    rate="lines_per_second",
    options=(f"--text={{folder}}/data/{TEST_SET}.en",),
    trial=("--limit=8",),
    systems=translators("{workdir}", "{folder}/ctranslate2"),
)
_OF_OPUS_MT = translators("{folder}/opus_workdir", "{folder}/opus_ctranslate2")
_OF_OPUS_MT.pop("this package, XLA")  # a program for each number of tokens
OPUS_MT = TRANSLATION._replace(
    heading="translation with a model of OPUS-MT's size, lines/s",
    # With random weights no output ends: all systems make the same number of
    # tokens.
    options=(
        *TRANSLATION.options,
        "--limit=32",
        "--max_output_length=16",
    ),
    systems={
        **_OF_OPUS_MT,
        "transformers": System(
            "translate_transformers",
            "transformers",
            ("--model={folder}/opus_mt",),
        ),
    },
)
TABLES = TRAINING, TRANSLATION, OPUS_MT
_SINGLE = "--single", f"--limit={SINGLE_LINES}"
_SEARCHES = {"greedy": 1, "beam_4": 4}
ROWS = {
    "train_tiny_fp32": Row(
        TRAINING,
        "train `tiny`, float32",
        ("--size=tiny",),
        # Compiled PyTorch takes minutes to begin, and OpenNMT-tf is faster.
        (
            "this package",
            WITHOUT_ONEDNN,
            "OpenNMT-tf",
            "PyTorch",
            "JoeyNMT",
            CEILING,
        ),
    ),
    "train_tiny_bf16": Row(
        TRAINING,
        "train `tiny`, bfloat16",
        ("--size=tiny", "--bfloat16"),
        ("this package", "PyTorch", "PyTorch, compiled", CEILING),
    ),
    "train_base_fp32": Row(
        TRAINING,
        "train `base`, float32",
        ("--size=base", "--steps=4"),
        ("this package", WITHOUT_ONEDNN, "OpenNMT-tf", "PyTorch", CEILING),
    ),
    **{
        f"{name}_{search}": Row(
            TRANSLATION,
            f"{lines}, {search.replace('_', ' ')}",
            (f"--beam_size={beam_size}", *options),
            tuple(TRANSLATION.systems),
        )
        for name, lines, options in (
            ("all", "all lines at once", ()),
            ("single", "one line at a time", _SINGLE),
        )
        for search, beam_size in _SEARCHES.items()
    },
    **{
        f"opus_{search}{name}": Row(
            OPUS_MT,
            f"OPUS-MT's size, {search.replace('_', ' ')}{title}",
            (f"--beam_size={beam_size}", *options),
            systems,
        )
        for search, beam_size in _SEARCHES.items()
        for name, title, options, systems in (
            ("", "", (), tuple(OPUS_MT.systems)),
            (
                "_shortlist",
                ", shortlist",
                ("--shortlist",),
                tuple(s for s in _OF_OPUS_MT if not s.startswith(ENGINE)),
            ),
        )
    },
}
