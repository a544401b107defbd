"""The SavedModel: signatures, hostile input, operations, warm-up."""

import functools
import pathlib
import resource
import unicodedata

import exports
import numpy as np
import pytest
import tensorflow as tf
import tokenization_test
from random_pairs import make_pairs
from readable import readable
from signatures import assert_answers
from tensorflow.core.protobuf import config_pb2, saved_model_pb2
from tolerance import assert_close

import keras_transformer as kt
from keras_transformer.figures.attention import AttentionFigure
from keras_transformer.text.vocabulary import EOS, PAD, UNK
from savedmodel import saved_model, search

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
    BroadcastArgs BroadcastTo Cast ConcatV2 Const Cos Cumsum
    DisableCopyOnRead EnsureShape Equal Exp ExpandDims Fill Floor FloorDiv
    FloorMod GatherNd GatherV2 Greater GreaterEqual Identity IdentityN If
    IsFinite Less LessEqual Log LogSoftmax LogicalAnd LogicalNot LogicalOr
    MatMul Max Maximum Mean MergeV2Checkpoints Min Minimum Mul Neg NoOp
    NotEqual OnesLike Pack Pad PadV2 PartitionedCall Placeholder
    PlaceholderWithDefault Pow Prod RaggedRange RaggedTensorToTensor Range
    Rank ReadVariableOp RealDiv Relu Reshape RestoreV2 ReverseV2 Rsqrt
    SaveV2 Select SelectV2 Shape ShardedFilename Sigmoid Sin Size Softmax
    Split Sqrt Square SquaredDifference Squeeze StatefulPartitionedCall
    StatelessIf StatelessWhile StaticRegexFullMatch StopGradient
    StridedSlice StringJoin StringLength StringStrip Sub Substr Sum
    TensorScatterUpdate Tile TopKV2 Transpose UnicodeTranscode
    Unpack VarHandleOp Where While ZerosLike
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


def ask(signatures, name, **inputs):
    """Returns a signature's answer as arrays."""
    tensors = {key: tf.constant(value) for key, value in inputs.items()}
    found = signatures[name](**tensors)
    return {key: value.numpy() for key, value in found.items()}


def translations(signatures, lines, name="serving_default", **others):
    found = ask(signatures, name, text=lines, **others)
    return [line.decode() for line in found["translation"]]


def best_ids(signatures, rows):
    """Returns the ids of the best translations of rows of ids."""
    found = ask(signatures, "tokens", source_ids=rows)
    return [
        row[0, : length[0]].tolist()
        for row, length in zip(found["ids"], found["lengths"], strict=True)
    ]


def readable_lines():
    """Returns the sentences that the graph reads as the translator does."""
    tokenizer = exports.translator().tokenizer
    read = readable(tokenizer, exports.SENTENCES)
    return [exports.SENTENCES[i] for i in read]


def test_every_signature_answers_as_the_translator(signatures):
    lines = readable_lines()
    assert_answers(signatures, exports.translator(), lines)


def test_a_prefix_is_kept_and_an_empty_one_changes_nothing(signatures):
    text, prefixes = (
        ["one dog", "one dog", "two trees"],
        ["rot Baum", "", "drei"],
    )
    forced = translations(signatures, text, "forced", target_prefix=prefixes)
    assert forced[0].startswith("rot Baum")
    assert forced[1:2] == translations(signatures, ["one dog"])
    assert forced[2].startswith("drei")


def test_attention_belongs_to_the_pieces(signatures):
    """It is that of references if there are some, else of translations."""
    text = ["one dog", "two trees", "tree", ""]
    reference = ["", "rot Baum", "zwei", ""]
    found = ask(signatures, "attention_maps", text=text, reference=reference)
    [free] = translations(signatures, ["one dog"])
    answers = [line.decode() for line in found["translation"]]
    assert answers == [free, "rot Baum", "zwei", ""]
    source, target = found["source_pieces"], found["target_pieces"]
    joined = b"".join(target[0]).decode().replace("</s>", "")
    assert joined.replace("▁", " ").strip() == free
    config = exports.translator().model.config
    for name, depth, rows, columns in (
        ("attention", config.decoder_depth, target, source),
        ("encoder_attention", config.num_layers, source, source),
        ("decoder_attention", config.decoder_depth, target, target),
    ):
        shape = depth, config.num_heads, rows.shape[1], columns.shape[1]
        assert found[name].shape == (4, *shape)
        np.testing.assert_allclose(found[name].sum(-1), 1, atol=1e-5)
    weights = np.moveaxis(found["attention"], -1, 1)  # [B, S, L, H, T]
    assert not weights[source == b""].any()


@pytest.mark.parametrize("reference", ["", "ein rot Hund"])
def test_an_export_has_what_the_model_attends_to(signatures, reference):
    inputs = {"text": ["one dog"], "reference": [reference]}
    found = ask(signatures, "attention_maps", **inputs)
    found = {name: values[0] for name, values in found.items()}
    expected = kt.attention_figure(
        exports.translator(), "one dog", reference or None
    )
    assert found["translation"].decode() == expected.target
    figure = AttentionFigure(
        "one dog",
        expected.target,
        *(
            [piece.decode() for piece in found[f"{side}_pieces"] if piece]
            for side in ("source", "target")
        ),
        {
            "encoder": found["encoder_attention"],
            "decoder": found["decoder_attention"],
            "cross": found["attention"],
        },
    )
    assert figure.tokens == expected.tokens
    for kind, weights in expected.maps.items():
        np.testing.assert_allclose(
            figure.maps[kind], weights, rtol=1e-3, atol=1e-5
        )


def test_an_empty_batch_has_an_empty_answer(signatures):
    nothing, no_ids = tf.zeros([0], tf.string), tf.zeros([0, 0], tf.int32)
    for signature in signatures.values():
        _, names = signature.structured_input_signature
        found = signature(
            **{n: no_ids if n == "source_ids" else nothing for n in names}
        )
        assert {len(value) for value in found.values()} == {0}


def serving_padding(requests):
    """Makes a batch as TensorFlow Serving makes it of several requests.

    With `pad_variable_length_inputs` each request's tensor is padded with its
    own first element; then, to an allowed batch size, rows like the last
    request's first are added (batching_util.cc, batching_session.cc).
    """
    longest = max(ids.shape[1] for ids in requests)
    padded = []
    for ids in requests:
        widths = [(0, 0), (0, longest - ids.shape[1])]
        padded.append(np.pad(ids, widths, constant_values=ids.flat[0]))
    return np.concatenate([*padded, padded[-1][:1]])


def test_the_padding_of_tensorflow_serving_changes_no_translation(signatures):
    encode = exports.translator().tokenizer.encode
    lines = readable_lines()
    requests = [
        encode(lines[start : start + 2]).to_tensor(PAD).numpy()
        for start in range(0, len(lines), 2)
    ]
    batch = serving_padding(requests)
    after_eos = np.cumsum(batch == EOS, axis=1) - (batch == EOS) > 0
    assert np.any(after_eos & (batch != PAD))
    alone = exports.best_ids(lines)
    assert best_ids(signatures, batch) == [*alone, alone[-1]]


@pytest.fixture(scope="module")
def server(directory):
    """Runs signatures as TensorFlow Serving does: by TF 1's sessions.

    No Python looks at the inputs on this way: only the graph can refuse them.
    """
    graph = tf.Graph()
    session = tf.compat.v1.Session(graph=graph)
    with graph.as_default():
        meta_graph = tf.compat.v1.saved_model.load(
            session, ["serve"], str(directory)
        )

    def predict(name, **inputs):
        signature = meta_graph.signature_def[name]
        names = list(signature.outputs)
        # The public ways to run a session compare shapes with the signature's.
        call = session._make_callable_from_options(
            config_pb2.CallableOptions(
                feed=[signature.inputs[key].name for key in inputs],
                fetch=[signature.outputs[key].name for key in names],
            )
        )
        return dict(zip(names, call(*inputs.values()), strict=True))

    yield predict
    session.close()


VOCAB_SIZE = 60
RANK = "is not compatible with expected shape [?]."
NOT_SOURCES = "source_ids must be rows of tokens, then EOS (2)"


@pytest.mark.parametrize(
    "name, inputs, message",
    [
        ("serving_default", {"text": [["a", "b"], ["c", "d"]]}, RANK),
        ("serving_default", {"text": "one"}, RANK),
        ("n_best", {"text": [["a", "b"], ["c", "d"]]}, RANK),
        ("attention_maps", {"text": "one", "reference": ["b"]}, RANK),
        ("forced", {"text": ["a"], "target_prefix": "b"}, RANK),
        ("score", {"text": ["a"], "reference": [["b"]]}, RANK),
        (
            "forced",
            {"text": ["a"], "target_prefix": ["b", "c"]},
            "the same num",
        ),
        ("score", {"text": ["a", "b"], "reference": ["c"]}, "the same number"),
        ("tokens", {"source_ids": [5, 6, EOS]}, "expected shape [?,?]."),
        ("tokens", {"source_ids": [[5, -6, EOS]]}, NOT_SOURCES),
        ("tokens", {"source_ids": [[5, VOCAB_SIZE, EOS]]}, NOT_SOURCES),
        ("tokens", {"source_ids": [[5, EOS, 0], [5, 6, 7]]}, NOT_SOURCES),
        ("tokens", {"source_ids": [[5, PAD, EOS]]}, NOT_SOURCES),
    ],
)
def test_the_graph_refuses_bad_input(signatures, server, name, inputs, message):
    assert exports.translator().tokenizer.vocab_size == VOCAB_SIZE
    arrays = {
        key: np.array(value, np.int32 if key == "source_ids" else object)
        for key, value in inputs.items()
    }
    tensors = {key: tf.constant(value) for key, value in inputs.items()}
    for run, given in (
        (functools.partial(server, name), arrays),
        (signatures[name], tensors),
    ):
        with pytest.raises(tf.errors.InvalidArgumentError) as error:
            run(**given)
        assert message in str(error.value)


def test_good_input_passes_the_checks_in_a_session(signatures, server):
    lines = np.array(["one dog", "", "tree"], object)
    found = server("serving_default", text=lines)
    expected = [line.encode() for line in translations(signatures, lines)]
    assert found["translation"].tolist() == expected


def test_truncation_is_reported(signatures):
    short, long = "one dog", "one dog " * 20
    # White space is no token: so the tokens are few, but not all of the text.
    blank = short + " " * 5000 + "tree"
    encode = exports.translator().tokenizer.encode
    assert len(encode([long])[0]) > 22
    texts = {"text": [short, long, "", blank]}
    pairs = {"text": [short, short, long, short]}
    pairs["reference"] = [short, long, short, blank]
    prefixed = {"text": [short, short, "", "", short]}
    prefixed["target_prefix"] = [short, long, "rot", "", blank]
    ids = encode([short, long]).to_tensor()
    for name, inputs, truncated in (
        ("serving_default", texts, [False, True, False, True]),
        ("n_best", texts, [False, True, False, True]),
        ("score", pairs, [False, True, True, True]),
        ("attention_maps", pairs, [False, True, True, True]),
        # A blank source has no translation, so the prefix is lost.
        ("forced", prefixed, [False, True, True, False, True]),
        ("tokens", {"source_ids": ids}, [False, True]),
    ):
        found = ask(signatures, name, **inputs)
        assert found["truncated"].tolist() == truncated, name
        if name == "score":
            limit = exports.MAX_SOURCE_LENGTH + exports.DECODING.extra_length
            assert found["log_probs"].shape[1] == limit
    one, other = translations(signatures, [short, blank])
    assert one == other


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


def hangul(number):
    """Returns syllables as some keyboards write them, three characters each."""
    syllables = "".join(chr(0xAC01 + 28 * i) for i in range(number))
    return unicodedata.normalize("NFD", syllables)


def test_only_the_beginning_of_a_long_text_is_segmented():
    """It is as long as the wanted number of tokens can possibly be."""
    syllables = unicodedata.normalize("NFC", hangul(30))
    lines = [*map(" ".join, make_pairs(200)), syllables]
    for model_type, size in (("bpe", 100), ("char", 80)):
        tokenizer = tokenization_test.train(
            model_type, lines, size, character_coverage=1.0
        )
        longest = max(map(len, tokenizer.pieces))
        encode = saved_model.make_encoder(tokenizer)
        limit = 4 * longest * 9
        texts = [
            " ".join(lines[:30]),
            "\u3000".join(lines[:30]),
            hangul(30),
            "ﬁ" * 300,
            "x" * (limit - 4) + " dog",
            "\0" * limit + " dog",
            "one dog",
        ]
        ids, is_cut = encode(texts, 9)
        assert is_cut.numpy().tolist() == [len(t) > limit for t in texts]
        assert is_cut.numpy().tolist()[-3:] == [False, True, False]
        whole = tokenizer.to_ids(texts)
        for row, expected in zip(
            ids.numpy().tolist()[:-2], whole, strict=False
        ):
            assert row[:9] == (expected + [PAD] * 9)[:9]
        # All that is left is NUL: a space and one unknown token.
        expected = [*whole[-2][:2], EOS]
        assert UNK in expected and len(whole[-2]) > 3
        assert [i for i in ids.numpy()[-2] if i != PAD] == expected


@pytest.mark.parametrize("kind", tokenization_test.KINDS)
def test_the_encoder_of_exports_is_the_tokenizer(kind):
    """Ids of the text, or of as many characters as can matter."""
    plain = tokenization_test.trained(*tokenization_test.KINDS[kind])
    texts = tokenization_test.make_odd_strings()
    texts += ["☃\x01dog" * 400, " " * 2000 + "dog", "\0" * 10**6, "a\ufffd b"]
    for tokenizer in (plain, tokenization_test.with_table(plain)):
        encode = saved_model.make_encoder(tokenizer)
        longest = max(len(piece) for piece, _, _ in tokenizer.entries)
        limit = 4 * longest * 6
        ids, is_cut = encode(texts, 6)
        assert is_cut.numpy().tolist() == [len(text) > limit for text in texts]
        expected = tokenizer.to_ids([text[:limit] for text in texts])
        assert [
            [id for id in row if id != PAD] for row in ids.numpy().tolist()
        ] == expected
        assert len(expected[-2]) > 1  # a token for NUL


def test_requests_leave_no_memory_behind(signatures):
    requests = [[line] for line in (*exports.SENTENCES[:3], *HOSTILE.values())]
    del requests[4]  # ten thousand words: a second for each

    def ask(number):
        for i in range(number):
            translations(signatures, requests[i % len(requests)])
        return resident_bytes()

    before = ask(50)
    assert ask(200) - before < 4e6


def resident_bytes():
    """Returns the resident memory of this process, in bytes."""
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


@pytest.mark.slow("backend")
def test_xla_inside_is_an_option(signatures):
    compiled = saved_model.Signatures(exports.translator(), jit_compile=True)
    function = compiled.signature("serving_default")
    assert any(
        f.attr["_XlaMustCompile"].b
        for f in function.graph.as_graph_def().library.function
    )
    text = tf.constant(["two red dogs", "", "tree"])
    found, expected = (
        each(text=text) for each in (function, signatures["serving_default"])
    )
    assert (found["translation"] == expected["translation"]).numpy().all()
    assert_close(found["score"], expected["score"])


def test_warm_up_requests_are_what_serving_reads(directory, signatures):
    from tensorflow_serving.apis import prediction_log_pb2

    path = directory / "assets.extra" / "tf_serving_warmup_requests"
    asked = set()
    for record in tf.data.TFRecordDataset(str(path)):
        log = prediction_log_pb2.PredictionLog.FromString(record.numpy())
        request = log.predict_log.request
        name = request.model_spec.signature_name
        inputs = request.inputs.items()
        ask(signatures, name, **{k: tf.make_ndarray(v) for k, v in inputs})
        asked.add(name)
    assert asked == set(signatures)


def test_sources_are_tokens_then_eos_then_anything():
    rows = [
        ([5, EOS, 9, 9], [5, EOS, PAD, PAD], True),
        ([5, EOS, -1, 99], [5, EOS, PAD, PAD], True),
        ([EOS, EOS, 0, 1], [EOS, PAD, PAD, PAD], True),
        ([PAD, PAD, PAD, PAD], [PAD] * 4, True),
        ([5, 6, 7, EOS], [5, 6, 7, EOS], True),
        ([5, 6, 7, 8], [PAD] * 4, False),
        ([5, PAD, PAD, PAD], [PAD] * 4, False),
        ([PAD, 5, EOS, PAD], [PAD] * 4, False),
        ([-1, 5, EOS, PAD], [PAD] * 4, False),
        ([10, 5, EOS, PAD], [PAD] * 4, False),
        ([9, 5, EOS, PAD], [9, 5, EOS, PAD], True),
    ]
    given, expected, valid = zip(*rows, strict=True)
    found = search.read_sources(tf.constant(given), 10, 4)
    assert found.ids.numpy().tolist() == list(map(list, expected))
    assert found.valid.numpy().tolist() == list(valid)
    long = tf.constant([[5, 6, 7, EOS], [5, EOS, 9, 9], [5, 6, EOS, 9]])
    found = search.read_sources(long, 10, 3)
    assert found.ids.numpy().tolist() == [[5, 6, 2], [5, 2, 0], [5, 6, 2]]
    assert found.truncated.numpy().tolist() == [True, False, False]
    nothing = search.read_sources(tf.zeros([0, 0], tf.int32), 10, 4)
    assert nothing.ids.numpy().tolist() == [[PAD]]
    assert nothing.valid.shape == nothing.truncated.shape == (0,)
