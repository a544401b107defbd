"""The work of `kt-translate`: from standard input to standard output.

Other commands use the same functions to open translators and to read and write
lines.
"""

import contextlib
import importlib
import io
import itertools
import os
import stat
import sys
import typing
from collections.abc import Callable, Iterable, Iterator

from absl import logging

from keras_transformer.commands import flags
from keras_transformer.commands.startup import load, start_jax
from keras_transformer.data.files.pairs import FIRST_BYTES, text_lines
from keras_transformer.translation import engines
from keras_transformer.translation.requests import (
    Request,
    Sentences,
    UntaggedError,
    make_requests,
)
from trainers.translating.detection import watched
from trainers.translating.options import OutputOptions, TranslatorChoice

if typing.TYPE_CHECKING:
    from keras_transformer.translator import Translator

CHUNK = 4096  # lines read, sorted and translated together


def open_translator(choice: TranslatorChoice) -> "Translator":
    """Opens the translator that a command line asks for.

    Checks the options, then imports a framework, which takes seconds: callers
    should check their own input first. Raises CommandError for bad options.
    """
    options = choice.options
    with flags.user_errors():
        choice.check()
    engine = engines.find_engine(options.engine)
    if engine.NEEDS_KERAS:
        start_jax()
        devices = load("keras_transformer.commands.devices")
        translators = load("keras_transformer.translator")
        with flags.user_errors():
            number = devices.count_searches(options.device)
        threads = options.num_threads or number
        others = {"jit_compile": options.jit_compile, "num_threads": threads}
    else:
        translators = importlib.import_module("keras_transformer.translator")
        others = {"device": options.device, "num_threads": options.num_threads}
    others["max_source_length"] = options.max_source_length
    with flags.user_errors():
        translator = translators.Translator.load(
            options.workdirs,
            choice.read_search(tell=True),
            options.checkpoint,
            engine=options.engine,
            compute_type=options.compute_type,
            precision=options.precision,
            shortlist=choice.shortlist,
            **{name: v for name, v in others.items() if v is not None},
        )
        if choice.languages is not None:
            translator = translator.with_languages(
                choice.languages.source_language,
                choice.languages.target_language,
            )
        found = choice.terminology.read(translator.check_forms)
        return translator.with_terminology(found)


def read_lines(
    file: typing.BinaryIO,
    name: str = "standard input",
    first: int = 1,
    warn: Callable = logging.warning,
) -> Iterator[str]:
    """Yields the lines of a binary file as `str`, without line breaks.

    Replaces bytes that are not UTF-8 by U+FFFD, with a warning. `name` is the
    file's name in messages, `first` the number of the first line.

    Raises RunError if the file cannot be read, CommandError if it is not text.
    """
    lines = text_lines(file, name) if first == 1 else iter(file)
    for number in itertools.count(first):
        try:
            line = next(lines)
        except StopIteration:
            if number == 1:
                warn("%s has no line", name)
            return
        except OSError as error:
            raise flags.RunError(f"{name}: {error.strerror}") from error
        except ValueError as error:
            raise flags.CommandError(str(error)) from error
        line = line.removesuffix(b"\n")
        try:
            yield line.decode("utf-8")
        except UnicodeDecodeError as error:
            warn(
                "%sline %d is not UTF-8 (%s, byte %d of the line)",
                "" if name == "standard input" else f"{name}, ",
                number,
                error.reason,
                error.start + 1,
            )
            yield line.decode("utf-8", "replace")


def read_input() -> Iterator[str]:
    """Yields the lines of standard input, as `read_lines` does.

    Raises CommandError at once if standard input is a binary file. A pipe is
    not checked here, as it may be empty at first.
    """
    file = sys.stdin.buffer
    if isinstance(file, io.BufferedReader):
        if stat.S_ISREG(os.fstat(file.fileno()).st_mode):
            with flags.user_errors():
                start = file.peek()[:FIRST_BYTES]
                next(text_lines([start], "standard input"))
    return read_lines(file)


def search(
    translator: "Translator",
    sentences: Sentences,
    assessor: typing.Any,
    num_best: int = 1,
) -> tuple[list, list]:
    """Translates sentences, and with an `Assessor` assesses them.

    Returns a `Translation` and an `Assessment` or None for each sentence. With
    an assessor, each `Translation` has one hypothesis.
    """
    if assessor:
        return assessor.search(sentences)
    found = translator.search(sentences, num_best=num_best)
    return found, [None] * len(found)


def translate_lines(
    translator: "Translator",
    lines: Iterable[str | Request],
    chunk_size: int,
    n_best: int = 0,
    alignments: bool = False,
    first: int = 1,
    warn: Callable = logging.warning,
    assessor: typing.Any = None,
) -> Iterator[str]:
    """Yields the output lines for input lines.

    `chunk_size` lines are translated together. `n_best` and `alignments` are as
    in `OutputOptions`. `warn` is called for each note on a line, such as a
    truncation; `first` is the number of the first line in its messages. With an
    `Assessor`, each line also has the confidence; `n_best` of 1 then adds the
    probability alone.

    Raises RunError if the model's logits are not finite, CommandError if a line
    has no tag.
    """
    lines, done = iter(lines), 0
    while chunk := make_requests(list(itertools.islice(lines, chunk_size))):
        try:
            results, assessed = search(translator, chunk, assessor, n_best or 1)
        except UntaggedError as error:
            number = first + done + error.index
            raise flags.CommandError(
                f"line {number}, without --target_language: {error}"
            ) from error
        links: Iterator[str] = iter([])
        if alignments:
            pairs = [
                (request.as_source, text)
                for request, found in zip(chunk, results, strict=True)
                for text in found.texts
            ]
            links = (pharaoh(found.links) for found in translator.align(pairs))
        for number, (found, one) in enumerate(
            zip(results, assessed, strict=True), first + done
        ):
            for note in found.notes:
                warn("line %d %s", number, note)
            for text, score in zip(found.texts, found.scores, strict=True):
                columns = [str(number), text, f"{score:.6f}"]
                if not n_best:
                    columns = [text]
                if alignments:
                    columns.append(next(links))
                if one:
                    columns += (
                        [f"{one.probability:.6f}"] if n_best else _shown(one)
                    )
                yield " ||| ".join(columns)
        done += len(chunk)


def _shown(assessment):
    """Returns the columns of an assessment: probability and reasons."""
    reasons = filter(None, ["; ".join(assessment.reasons)])
    return [f"{assessment.probability:.2f}", *reasons]


def pharaoh(links: Iterable[tuple[int, int]]) -> str:
    """Formats word links as alignment files do (Pharaoh format).

    >>> pharaoh([(0, 1), (2, 0)])
    '0-1 2-0'
    """
    return " ".join(f"{source}-{target}" for source, target in links)


def read_requests(
    lines: Iterable[str], prefixes: Iterable[str]
) -> Iterator[Request]:
    """Yields a `Request` for each line and its prefix.

    Raises CommandError if there are more lines than prefixes, or fewer.
    """
    pairs = itertools.zip_longest(lines, prefixes)
    for number, (line, prefix) in enumerate(pairs):
        if line is None or prefix is None:
            received = f"{'only' if prefix is None else 'more than'} {number}"
            raise flags.CommandError(
                "prefix_file must have a line for each input line."
                f" Received: {received} lines"
            )
        yield Request(line, prefix)


def write_lines(lines: Iterable[str], file: typing.BinaryIO) -> None:
    """Writes lines to a binary file, and flushes after each.

    Returns without an error if the reader has closed the output, as `| head`
    does.
    """
    with flags.output_errors(file):
        for line in lines:
            file.write(line.encode("utf-8") + b"\n")
            file.flush()


def run(
    choice: TranslatorChoice,
    options: OutputOptions,
    prefix_file: str | None,
    confidence: bool,
) -> None:
    """Translates the lines of standard input. Arguments are as the flags."""
    lines = read_input()
    requests: Iterable[str | Request] = lines
    with contextlib.ExitStack() as stack:
        if prefix_file:
            with flags.user_errors():
                file = stack.enter_context(open(prefix_file, "rb"))
            requests = read_requests(lines, read_lines(file, prefix_file))
            if not sys.stdin.isatty():  # a terminal expects answers at once
                requests = list(requests)
        with flags.user_errors():
            search = choice.read_search()
            search.check_number(options.n_best or 1, "n_best")
            search.check_seed(options.seed or None)
        translator = open_translator(choice).with_seed(options.seed)
        with flags.user_errors():
            assessor = translator.assessor() if confidence else None
        if requests is lines:
            source_language, _ = choice.read_direction()
            requests = watched(lines, source_language.split(","))
        outputs = translate_lines(
            translator,
            requests,
            1 if sys.stdin.isatty() else CHUNK,
            search.count_outputs(options.n_best),
            options.alignments,
            assessor=assessor,
        )
        write_lines(outputs, sys.stdout.buffer)
