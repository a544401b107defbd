"""Serves translation over HTTP, with LibreTranslate's API and its own.

    python -m trainers.serve --workdir=DIR[,DIR...] [--port=8080]

Each work directory is a language pair. The requests of many clients share
batches. SIGTERM finishes accepted requests, and ends with status 0. It needs
the extra `serve`. See docs/serving.md.
"""

from keras_transformer.commands import flags
from keras_transformer.commands.startup import end_on_interrupt, load
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
            server = load("trainers.serving.server")
        except ModuleNotFoundError as error:
            raise flags.CommandError(
                f"needs the extra 'serve': {flags.how_to_install('serve')}"
                f" ({error})"
            ) from error
        search = arguments.given_of(DecodingConfig)
        server.run(translator, search, options, limits)


def script() -> None:
    """Runs the command in a process of its own: `kt-serve`."""
    end_on_interrupt()
    main()


if __name__ == "__main__":
    script()
