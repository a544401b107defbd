"""Serves translation over HTTP, with LibreTranslate's API and its own.

    python -m trainers.serve --workdir=DIR[,DIR...] [--port=8080]

Each work directory is a language pair. The requests of many clients share
batches. SIGTERM and SIGHUP finish accepted requests, and end with status 0. It
needs the extra `serve`. See docs/serving.md.
"""

import os
import signal

from keras_transformer.commands import flags
from keras_transformer.commands.startup import end_on_interrupt
from keras_transformer.config import DecodingConfig
from trainers.run.options import TranslatorOptions
from trainers.serving.config import Limits, Options


def main(argv: list[str] | None = None) -> None:
    """Runs the command."""
    with flags.exit_status("trainers.serve"):
        arguments = flags.parse(
            argv, __doc__, TranslatorOptions, Options, Limits, DecodingConfig
        )
        translator = arguments.build(TranslatorOptions)
        options, limits = arguments.build(Options), arguments.build(Limits)
        translator.prepare_process()
        try:
            from trainers.serving import server
        except ModuleNotFoundError as error:
            raise flags.CommandError(
                f"needs the extra 'serve': {flags.how_to_install('serve')}"
                f" ({error})"
            ) from error
        search = arguments.given_of(DecodingConfig)
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
