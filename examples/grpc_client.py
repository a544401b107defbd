"""Translates standard input with TensorFlow Serving, over gRPC.

python examples/grpc_client.py localhost:8500 translator < sentences.txt

Needs tensorflow-serving-api in the version of TensorFlow, and no model here.
"""

import itertools
import sys

import grpc
import tensorflow as tf
from tensorflow_serving.apis import predict_pb2, prediction_service_pb2_grpc

LINES = 32  # of a request
SECONDS = 60  # to wait for an answer


def connect(server):
    """The service at HOST:PORT."""
    # The attention of a few long sentences exceeds the default of 4 MB.
    unlimited = [("grpc.max_receive_message_length", -1)]
    channel = grpc.insecure_channel(server, unlimited)
    return prediction_service_pb2_grpc.PredictionServiceStub(channel)


def predict(service, model, signature_name, **inputs):
    """The outputs of a signature, NumPy arrays by name."""
    request = predict_pb2.PredictRequest()
    request.model_spec.name = model
    request.model_spec.signature_name = signature_name
    for name, value in inputs.items():
        request.inputs[name].CopyFrom(tf.make_tensor_proto(value))
    response = service.Predict(request, timeout=SECONDS)
    return {name: tf.make_ndarray(v) for name, v in response.outputs.items()}


def main(server, model, lines, output):
    service = connect(server)
    lines = (line.rstrip(b"\n") for line in lines)
    try:
        while batch := list(itertools.islice(lines, LINES)):
            found = predict(service, model, "serving_default", text=batch)
            for translation in found["translation"]:
                output.write(translation + b"\n")
            output.flush()
    except grpc.RpcError as error:
        reason = f"{error.code().name}: {error.details()}"
        raise SystemExit(f"grpc_client.py: {server}: {reason}") from None


if __name__ == "__main__":
    main(*sys.argv[1:3], sys.stdin.buffer, sys.stdout.buffer)
