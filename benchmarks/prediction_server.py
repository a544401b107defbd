"""A gRPC PredictionService in Python, in place of TensorFlow Serving.

`serving` answers the requests of `savedmodel.client`; `Batcher` puts requests
together as TensorFlow Serving does (`SharedBatchScheduler` in TensorFlow's
`batching_util`, `BatchingSession` in `tensorflow_serving/batching`), for the
requests of one signature.
"""

import collections
import contextlib
import dataclasses
import threading
import time
from collections.abc import Callable, Iterator
from concurrent import futures

import grpc
import numpy as np
import tensorflow as tf
from tensorflow_serving.apis import predict_pb2, prediction_service_pb2_grpc

Arrays = dict[str, np.ndarray]


@contextlib.contextmanager
def serving(
    predict: Callable[[str, str, Arrays], dict],
    threads: int = 2,
    address: str = "localhost:0",
) -> Iterator[str]:
    """A server, while the block runs; the block gets its HOST:PORT.

    Args:
        predict: Function of the model's name, the signature's name and the
            inputs by name; returns the outputs by name.
        threads: Requests that are answered at the same time.
        address: HOST:PORT to listen at; port 0: one that is free.
    """

    class Service(prediction_service_pb2_grpc.PredictionServiceServicer):
        def Predict(self, request, context):
            inputs = {
                name: tf.make_ndarray(value)
                for name, value in request.inputs.items()
            }
            spec = request.model_spec
            try:
                found = predict(spec.name, spec.signature_name, inputs)
            except QueueIsFullError as error:
                context.abort(grpc.StatusCode.UNAVAILABLE, str(error))
            response = predict_pb2.PredictResponse()
            for name, value in found.items():
                response.outputs[name].CopyFrom(tf.make_tensor_proto(value))
            return response

    server = grpc.server(futures.ThreadPoolExecutor(threads))
    prediction_service_pb2_grpc.add_PredictionServiceServicer_to_server(
        Service(), server
    )
    host = address.rsplit(":", 1)[0]
    port = server.add_insecure_port(address)
    server.start()
    try:
        yield f"{host}:{port}"
    finally:
        server.stop(None)


@dataclasses.dataclass(frozen=True)
class BatchingParameters:
    """The fields of TensorFlow Serving's file of the same name.

    Attributes:
        max_batch_size: Rows of a batch, at most.
        batch_timeout_micros: How long a batch waits for more requests after its
            first one, if a thread is free.
        num_batch_threads: Batches that run at the same time.
        max_enqueued_batches: Batches that wait; more requests are refused.
        allowed_batch_sizes: Sizes that batches are padded to; empty: they are
            not padded.
    """

    max_batch_size: int = 32
    batch_timeout_micros: int = 2000
    num_batch_threads: int = 2
    max_enqueued_batches: int = 100
    allowed_batch_sizes: tuple[int, ...] = ()


class QueueIsFullError(Exception):
    """`max_enqueued_batches` batches wait already."""


class _Batch:
    """Requests that run together, each with the future of its outputs."""

    def __init__(self):
        self.tasks: list[tuple[Arrays, futures.Future]] = []
        self.size = 0
        self.started = 0.0  # when its first request came

    def add(self, inputs, size):
        if not self.tasks:
            self.started = time.monotonic()
        future: futures.Future = futures.Future()
        self.tasks.append((inputs, future))
        self.size += size
        return future


class Batcher:
    """Puts the requests of one signature together.

    The last batch of the queue is open: a request goes into it, or closes it
    and begins another one if there is no room. A thread takes the first batch
    if it is closed, full or older than the timeout.

    Args:
        run: Function of inputs by name, which returns outputs by name, as many
            rows.
        parameters: `BatchingParameters`.
    """

    def __init__(
        self, run: Callable[[Arrays], Arrays], parameters: BatchingParameters
    ):
        self._run = run
        self._parameters = parameters
        self._batches: collections.deque[_Batch] = collections.deque([_Batch()])
        self._changed = threading.Condition()
        for _ in range(parameters.num_batch_threads):
            threading.Thread(target=self._work, daemon=True).start()

    def __call__(self, inputs: Arrays) -> Arrays:
        """The outputs of a request, when its batch has run.

        Raises:
            ValueError: It has more rows than a batch may have.
            QueueIsFullError: See there.
        """
        size = len(next(iter(inputs.values())))
        parameters = self._parameters
        if size > parameters.max_batch_size:
            raise ValueError(
                f"expected at most {parameters.max_batch_size} rows."
                f" Received: {size}"
            )
        with self._changed:
            if self._batches[-1].size + size > parameters.max_batch_size:
                if len(self._batches) >= parameters.max_enqueued_batches:
                    raise QueueIsFullError("the queue of batches is full")
                self._batches.append(_Batch())
            future = self._batches[-1].add(inputs, size)
            self._changed.notify()
        return future.result()

    def _work(self):
        """The loop of a batch thread."""
        while True:
            with self._changed:
                while (wait := self._seconds_to_wait()) != 0.0:
                    self._changed.wait(wait)
                batch = self._batches.popleft()
                if not self._batches:
                    self._batches.append(_Batch())
            self._process(batch)

    def _seconds_to_wait(self):
        """Seconds until the first batch may run; None without a request."""
        first, parameters = self._batches[0], self._parameters
        if not first.tasks:
            return None
        if len(self._batches) > 1 or first.size >= parameters.max_batch_size:
            return 0.0
        ready = first.started + parameters.batch_timeout_micros / 1e6
        return max(0.0, ready - time.monotonic())

    def _process(self, batch):
        """Runs a batch; if it fails, all its requests fail."""
        try:
            outputs = self._run(self._merged(batch))
        except Exception as error:
            for _, future in batch.tasks:
                future.set_exception(error)
            return
        start = 0
        for inputs, future in batch.tasks:
            stop = start + len(next(iter(inputs.values())))
            future.set_result(
                {name: rows[start:stop] for name, rows in outputs.items()}
            )
            start = stop

    def _merged(self, batch):
        """The inputs of all requests, padded with the last one's first row."""
        padding = self._padding(batch.size)
        every = [inputs for inputs, _ in batch.tasks]
        return {
            name: np.concatenate(
                [inputs[name] for inputs in every]
                + [every[-1][name][:1]] * padding
            )
            for name in every[0]
        }

    def _padding(self, size):
        """Rows to the next allowed size."""
        allowed = [n for n in self._parameters.allowed_batch_sizes if n >= size]
        return min(allowed, default=size) - size
