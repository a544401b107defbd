"""Translates standard input with TensorFlow Serving, over gRPC.

    python -m savedmodel.client --server=HOST:PORT < source.txt > found.txt

Needs the extra `client` (pip install 'keras-transformer-nmt[client]'), and no
model here.
"""

import dataclasses
import itertools
import sys

from keras_transformer.commands import flags
from keras_transformer.commands.startup import load_tensorflow
from keras_transformer.fields import Fields, hp


@dataclasses.dataclass(frozen=True)
class ClientOptions(Fields):
    """The server."""

    server: str = hp("localhost:8500", "HOST:PORT of its gRPC port.")
    model: str = hp("translator", "The model's name there.")
    batch_size: int = hp(32, "Lines in a request.", low=1)
    timeout: float = hp(60.0, "Seconds to wait for an answer.", low=0.0)


class Client:
    """A model that TensorFlow Serving serves.

    Args:
        options: The `ClientOptions`.
    """

    def __init__(self, options: ClientOptions):
        # Not at the top: bad flags are refused before TensorFlow is imported,
        # and a missing extra is named.
        load_tensorflow()
        import grpc
        import tensorflow as tf
        from tensorflow_serving.apis import (
            predict_pb2,
            prediction_service_pb2_grpc,
        )

        self._options = options
        self._make_request = predict_pb2.PredictRequest
        self._to_proto, self._to_array = tf.make_tensor_proto, tf.make_ndarray
        # The attention of a few long sentences exceeds the default of 4 MB.
        unlimited = [("grpc.max_receive_message_length", -1)]
        channel = grpc.insecure_channel(options.server, unlimited)
        self._stub = prediction_service_pb2_grpc.PredictionServiceStub(channel)

    def predict(self, signature_name: str, **inputs) -> dict:
        """Runs a signature.

        Args:
            signature_name: Such as "serving_default" or "n_best".
            **inputs: Lists or arrays by input name.

        Returns:
            NumPy arrays by output name.

        Raises:
            grpc.RpcError: The server cannot be reached, or refuses the request.
        """
        request = self._make_request()
        request.model_spec.name = self._options.model
        request.model_spec.signature_name = signature_name
        for name, value in inputs.items():
            request.inputs[name].CopyFrom(self._to_proto(value))
        response = self._stub.Predict(request, timeout=self._options.timeout)
        return {
            name: self._to_array(value)
            for name, value in response.outputs.items()
        }

    def translate(self, lines: list) -> list[bytes]:
        """Translations, list of `bytes`, of a list of `str` or `bytes`."""
        return list(self.predict("serving_default", text=lines)["translation"])


def main(argv: list[str] | None = None) -> None:
    """Runs the command."""
    with flags.exit_status("savedmodel.client"):
        arguments = flags.parse(argv, __doc__, ClientOptions)
        options = arguments.build(ClientOptions)
        try:
            import grpc

            client = Client(options)
        except ImportError as error:
            raise flags.CommandError(
                f"needs the extra 'client': {flags.how_to_install('client')}"
                f" ({error})"
            ) from error
        flags.check_streams("stdin", "stdout")
        lines = (line.rstrip(b"\n") for line in sys.stdin.buffer)
        try:
            with flags.output_errors():
                while batch := list(
                    itertools.islice(lines, options.batch_size)
                ):
                    for translation in client.translate(batch):
                        sys.stdout.buffer.write(translation + b"\n")
                    sys.stdout.flush()
        except grpc.RpcError as error:
            raise flags.RunError(
                f"{options.server}: {error.code().name}: {error.details()}"
            ) from error


if __name__ == "__main__":
    main()
