"""The SavedModel: signatures, hostile input, operations, warm-up."""

import pathlib
import resource

import exports
import numpy as np
import pytest
import tensorflow as tf
from tensorflow.core.protobuf import saved_model_pb2

from keras_transformer.vocabulary import BOS, EOS, PAD
from savedmodel import saved_model

# All of TensorFlow's own and none of XLA's, but for these of TF Text, which
# TensorFlow Serving links whole (its model_servers/BUILD).
TEXT_OPS = {
    "SentencepieceDetokenizeOp",
    "SentencepieceOp",
    "SentencepieceTokenizeOp",
}
CORE_OPS = set(
    """
    Add AddV2 All Any Assert AssignVariableOp BatchMatMulV2 BiasAdd Bitcast
    BroadcastArgs BroadcastTo Cast ConcatV2 Const Cos Cumsum DisableCopyOnRead
    Equal Exp ExpandDims Fill Floor FloorDiv FloorMod GatherNd GatherV2 Greater
    GreaterEqual Identity IdentityN If IsFinite Less LessEqual Log LogSoftmax
    LogicalAnd LogicalNot LogicalOr MatMul Max Maximum Mean MergeV2Checkpoints
    Min Minimum Mul Neg NoOp NotEqual OnesLike Pack Pad PadV2 PartitionedCall
    Placeholder Pow Prod RaggedRange RaggedTensorToTensor Range ReadVariableOp
    RealDiv Relu Reshape RestoreV2 ReverseV2 Rsqrt SaveV2 Select SelectV2 Shape
    ShardedFilename Sigmoid Sin Size Softmax Split Sqrt Square SquaredDifference
    Squeeze StatefulPartitionedCall StatelessIf StatelessWhile
    StaticRegexFullMatch StopGradient StridedSlice StringJoin Sub Sum Tile
    TopKV2 Transpose UnicodeTranscode Unpack VarHandleOp Where While ZerosLike
    """.split()
)
HOSTILE = {
    "empty": b"",
    "ten thousand words": b"dog " * 10000,
    "one long word": b"x" * 100000,
    "invalid UTF-8": b"\xff\xfe dog \xc3",
    "NUL": b"one\0two\0",
    "emoji": "one \U0001f468\u200d\U0001f469\u200d\U0001f467 dog".encode(),
    "right to left": "\u202eשלום עולם".encode(),
    "only unknown": "漢字漢字".encode(),
    "line breaks": b"one\n\r\n\tdog",
}


@pytest.fixture(scope="module")
def directory():
    return exports.exported("saved_model")[0] / "1"


@pytest.fixture(scope="module")
def signatures(directory):
    return tf.saved_model.load(str(directory)).signatures


def translations(signatures, lines):
    found = signatures["serving_default"](text=tf.constant(lines, tf.string))
    return [line.decode() for line in found["translation"].numpy()]


def test_the_default_translates_as_the_translator_does(signatures):
    expected = exports.translator().n_best(list(exports.SENTENCES))
    text = tf.constant(exports.SENTENCES)
    found = signatures["serving_default"](text=text)
    assert translations(signatures, exports.SENTENCES) == [
        hypotheses[0][0] for hypotheses in expected
    ]
    np.testing.assert_allclose(
        found["score"], [h[0][1] for h in expected], rtol=1e-4
    )


def test_n_best_lists_every_hypothesis(signatures):
    expected = exports.translator().n_best(list(exports.SENTENCES))
    found = signatures["n_best"](text=tf.constant(exports.SENTENCES))
    for strings, scores, hypotheses in zip(
        found["hypotheses"].numpy(),
        found["scores"].numpy(),
        expected,
        strict=True,
    ):
        for string, score, (text, wanted) in zip(
            strings, scores, hypotheses, strict=False
        ):
            assert string.decode() == text
            assert score == pytest.approx(wanted, rel=1e-4)


@pytest.mark.parametrize("columns", [0, 1, 7])
def test_tokens_take_and_give_ids(columns, signatures):
    """However wide the padding."""
    translator = exports.translator()
    rows = translator.tokenizer.encode(list(exports.SENTENCES)).to_tensor(PAD)
    rows = tf.pad(rows, [[0, 0], [0, columns]], constant_values=PAD)
    found = signatures["tokens"](source_ids=rows)
    best = [
        ids[0, : lengths[0]].tolist()
        for ids, lengths in zip(
            found["ids"].numpy(), found["lengths"].numpy(), strict=True
        )
    ]
    assert best == [
        h[0][0] for h in translator.n_best_ids(list(exports.SENTENCES))
    ]


def test_the_score_of_a_translation_is_what_the_search_found(signatures):
    text = tf.constant(["one dog", "two red dogs"])
    best = signatures["serving_default"](text=text)
    found = signatures["score"](text=text, reference=best["translation"])
    lengths = np.sum(found["log_probs"].numpy() < 0, axis=1)
    penalty = ((5 + lengths) / 6) ** exports.DECODING.length_penalty
    np.testing.assert_allclose(
        found["log_prob"] / penalty, best["score"], rtol=1e-4
    )
    np.testing.assert_allclose(
        found["log_prob"], tf.reduce_sum(found["log_probs"], 1), rtol=1e-5
    )


def test_a_prefix_is_kept_and_an_empty_one_changes_nothing(signatures):
    text = tf.constant(["one dog", "one dog", "two trees"])
    found = signatures["forced"](
        text=text, target_prefix=tf.constant(["rot Baum", "", "drei"])
    )
    forced = [line.decode() for line in found["translation"].numpy()]
    free = translations(signatures, ["one dog"])
    assert forced[0].startswith("rot Baum")
    assert forced[1] == free[0]
    assert forced[2].startswith("drei")


def test_attention_belongs_to_the_pieces(signatures):
    found = signatures["attention"](text=tf.constant(["one dog", "tree", ""]))
    source, target = found["source_pieces"], found["target_pieces"]
    config = exports.translator().model.config
    assert found["attention"].shape == (
        3,
        config.decoder_depth,
        config.num_heads,
        target.shape[1],
        source.shape[1],
    )
    is_piece = source.numpy() != b""
    weights = found["attention"].numpy()
    np.testing.assert_allclose(weights.sum(-1), 1.0, atol=1e-5)
    assert np.all(
        weights[
            ~np.broadcast_to(is_piece[:, None, None, None, :], weights.shape)
        ]
        == 0
    )
    joined = b"".join(target.numpy()[0]).decode().replace("</s>", "")
    assert (
        joined.replace("▁", " ").strip()
        == translations(signatures, ["one dog"])[0]
    )


@pytest.mark.parametrize("name", ["serving_default", "n_best", "attention"])
def test_an_empty_batch_has_an_empty_answer(signatures, name):
    found = signatures[name](text=tf.zeros([0], tf.string))
    assert {len(value) for value in found.values()} == {0}


def test_an_empty_batch_of_ids_and_of_pairs(signatures):
    nothing = tf.zeros([0], tf.string)
    found = signatures["tokens"](source_ids=tf.zeros([0, 0], tf.int32))
    assert len(found["ids"]) == 0
    assert (
        len(signatures["score"](text=nothing, reference=nothing)["log_prob"])
        == 0
    )
    assert (
        len(
            signatures["forced"](text=nothing, target_prefix=nothing)[
                "translation"
            ]
        )
        == 0
    )


def test_pairs_must_be_pairs(signatures):
    with pytest.raises(tf.errors.InvalidArgumentError):
        signatures["score"](
            text=tf.constant(["one", "two"]), reference=tf.constant(["eins"])
        )


def test_hostile_lines_are_answered_in_order(signatures):
    lines = [b"one dog"]
    for line in HOSTILE.values():
        lines += [line, b"one dog"]
    answers = translations(signatures, lines)
    assert len(answers) == len(lines)
    assert set(answers[::2]) == {answers[0]}
    assert answers[1] == ""
    for name, line in HOSTILE.items():
        alone = translations(signatures, [line])
        assert alone == [answers[2 * list(HOSTILE).index(name) + 1]], name


def test_an_answer_does_not_depend_on_the_company(signatures):
    alone = [translations(signatures, [line])[0] for line in exports.SENTENCES]
    together = translations(signatures, exports.SENTENCES)
    backwards = translations(signatures, exports.SENTENCES[::-1])
    assert alone == together == backwards[::-1]


def test_a_thousand_requests_leave_no_memory_behind(signatures):
    requests = [[line] for line in (*exports.SENTENCES[:3], *HOSTILE.values())]

    def ask(number):
        for i in range(number):
            translations(signatures, requests[i % len(requests)])
        return resident_bytes()

    before = ask(100)
    assert ask(1000) - before < 8e6


def resident_bytes():
    """Memory of this process, in bytes."""
    pages = pathlib.Path("/proc/self/statm").read_text().split()[1]
    return int(pages) * resource.getpagesize()


def test_operations_are_those_that_tensorflow_serving_has(directory):
    saved = saved_model_pb2.SavedModel()
    saved.ParseFromString((directory / "saved_model.pb").read_bytes())
    [meta_graph] = saved.meta_graphs
    nodes = [*meta_graph.graph_def.node]
    for function in meta_graph.graph_def.library.function:
        assert not function.attr["_XlaMustCompile"].b
        nodes += function.node_def
    used = {node.op for node in nodes}
    assert used - TEXT_OPS - CORE_OPS == set()


def test_xla_inside_is_an_option(signatures):
    """Verified by the export itself; here the signatures, one by one."""
    directory = exports.exported("saved_model", "--jit_compile")[0] / "1"
    saved = saved_model_pb2.SavedModel()
    saved.ParseFromString((directory / "saved_model.pb").read_bytes())
    compiled = [
        function.signature.name
        for function in saved.meta_graphs[0].graph_def.library.function
        if function.attr["_XlaMustCompile"].b
    ]
    assert any("search" in name for name in compiled)
    with_xla = tf.saved_model.load(str(directory)).signatures
    text = tf.constant(["two red dogs", "", "tree"])
    for name in ("serving_default", "n_best", "attention"):
        expected, found = (s[name](text=text) for s in (signatures, with_xla))
        assert expected.keys() == found.keys()
        for key, value in expected.items():
            if value.dtype == tf.float32:
                np.testing.assert_allclose(found[key], value, atol=1e-4)
            else:
                np.testing.assert_array_equal(found[key], value)


def test_warm_up_requests_are_what_serving_reads(directory, signatures):
    from tensorflow_serving.apis import prediction_log_pb2

    path = directory / "assets.extra" / "tf_serving_warmup_requests"
    asked = set()
    for record in tf.data.TFRecordDataset(str(path)):
        log = prediction_log_pb2.PredictionLog.FromString(record.numpy())
        request = log.predict_log.request
        name = request.model_spec.signature_name
        signatures[name](
            **{
                key: tf.constant(tf.make_ndarray(value))
                for key, value in request.inputs.items()
            }
        )
        asked.add(name)
    assert asked == set(signatures)


def test_cut_keeps_the_end_mark():
    ids = tf.constant([[7, 8, 9, EOS], [5, EOS, PAD, PAD]])
    assert saved_model.cut(ids, 3).numpy().tolist() == [
        [7, 8, EOS],
        [5, EOS, PAD],
    ]
    assert saved_model.cut(ids[:0, :0], 3).numpy().tolist() == [[PAD]]
    assert saved_model.shift_right(ids).numpy()[0].tolist() == [BOS, 7, 8, 9]
