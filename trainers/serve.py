"""Serves translation over HTTP, with LibreTranslate's API and its own.

    kt-serve --workdir=DIR
    kt-serve --workdir=runs/en_de,runs/de_en --port=80 \\
        --host=0.0.0.0 --api_keys=keys.txt
    kt-serve --workdir=DIR --engine=ctranslate2

Each work directory is a language pair. Work directories with the same languages
form an ensemble. The requests of many clients share batches. On SIGTERM or
SIGHUP, the server finishes accepted requests and exits with status 0. With
--glossaries or --api_keys, SIGHUP reads them again instead. It needs the extra
`serve`.
See docs/serving.md.
"""

import dataclasses
import os
import signal

from keras_transformer.commands import flags
from keras_transformer.commands.startup import end_on_interrupt
from keras_transformer.config import DecodingConfig
from keras_transformer.storage import box
from trainers.serving.options import Limits, ServeOptions
from trainers.translating.options import (
    EnsembleOptions,
    check_ensemble,
    join_workdirs,
)


@flags.command(
    "kt-serve", __doc__, EnsembleOptions, ServeOptions, Limits, DecodingConfig
)
def main(arguments: flags.Arguments) -> None:
    """Runs the command."""
    translator = arguments.build(EnsembleOptions)
    if not translator.workdir:
        with flags.user_errors():
            paths = box.find()
            box.tell(tuple(paths))
        translator = dataclasses.replace(
            translator, workdir=join_workdirs(paths)
        )
    options, limits = arguments.build(ServeOptions), arguments.build(Limits)
    search = arguments.given_of(DecodingConfig)
    check_ensemble(translator, search)
    translator.prepare_process()
    try:
        from trainers.serving import server
    except ModuleNotFoundError as error:
        raise flags.CommandError(
            f"needs the extra 'serve': {flags.how_to_install('serve')}"
            f" ({error})"
        ) from error
    server.run(translator, search, options, limits)


def script(argv: list[str] | None = None) -> None:
    """Runs the command in a process of its own: `kt-serve`."""
    end_on_interrupt()
    for number in (signal.SIGTERM, signal.SIGHUP):
        if signal.getsignal(number) != signal.SIG_IGN:  # as by nohup
            signal.signal(number, lambda *_: os._exit(0))
    status = 0
    try:
        main(argv)
    except SystemExit as end:
        status = int(end.code or 0)
    # A thread may be in TensorFlow, which aborts if Python ends around it.
    flags.show()
    os._exit(status)


if __name__ == "__main__":
    script()
