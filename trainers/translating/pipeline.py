"""Translation of a plan's shards in an Apache Beam pipeline (extra `beam`).

An element is the number of a shard. A worker writes the shard to the directory
of the plan. All workers share this directory, the input and the work directory.
"""

import re
import shlex
import threading
import typing
from collections.abc import Iterator

import apache_beam as beam
from apache_beam.options.pipeline_options import PipelineOptions
from apache_beam.utils.shared import Shared

from keras_transformer.commands import flags
from trainers.run.resuming import run_errors
from trainers.translating import shards
from trainers.translating.lines import open_translator
from trainers.translating.options import TranslatorChoice


class TranslateShards(beam.DoFn):
    """A `DoFn` that translates shards: from numbers to counts of notes.

    `job` has the arguments of `_Process`.
    """

    def __init__(self, *job: typing.Any):
        self._job = job
        self._shared = Shared()

    def setup(self) -> None:
        # A process has several threads, each with a DoFn, that share one
        # translator.
        self._process = self._shared.acquire(lambda: _Process(*self._job))

    def process(self, number: int) -> Iterator[int]:
        yield self._process.translate(number)


class _Process:
    """The translator of a process, which translates one shard at a time."""

    def __init__(
        self,
        choice: TranslatorChoice,
        input: str,
        output: str,
        settings: dict[str, typing.Any],
    ):
        choice.options.prepare_process()
        self._translator = open_translator(choice)
        self._plan = shards.open_for(
            self._translator, input, output, **settings
        )
        self._lock = threading.Lock()  # a shard keeps all cores busy

    def translate(self, number: int) -> int:
        shard = self._plan.shards[number]
        with self._lock, run_errors(self._plan.path):
            # A runner repeats an element if it has lost the worker.
            if shard in self._plan.unfinished():
                shards.translate_shard(self._plan, shard, self._translator)
        return self._plan.read_record(shard)["notes"]


def run(
    choice: TranslatorChoice,
    input: str,
    output: str,
    runner: str,
    **settings: typing.Any,
) -> None:
    """Translates the unfinished shards of a file on a Beam runner.

    `settings` are as in `shards.make_settings`, the other arguments as the
    flags. Raises CommandError or RunError as a worker does.
    """
    with flags.user_errors():
        beam_options = PipelineOptions(shlex.split(f"--runner={runner}"))
        pipeline = beam.Pipeline(options=beam_options)
    translator = open_translator(choice)
    plan = shards.open_for(translator, input, output, **settings)
    numbers = [shard.number for shard in plan.unfinished()]
    try:
        with pipeline:
            _ = (
                pipeline
                | beam.Create(numbers)
                | beam.Reshuffle()  # each shard may go to another worker
                | beam.ParDo(TranslateShards(choice, input, output, settings))
            )
    except RuntimeError as error:  # it has the text of a worker's traceback
        ours = re.search(r"\b(CommandError|RunError): (.*)", str(error))
        if ours is None:
            raise
        raise getattr(flags, ours[1])(ours[2]) from error
    plan.remove_leftovers()
    shards.tell_state(plan)
