"""Sources of sentence pairs: parallel files and TensorFlow Datasets."""

import gzip

import pytest
import tensorflow as tf
from random_pairs import make_pairs

import keras_transformer as kt
from keras_transformer.data.files import pairs as pairs_module


def write_pair(folder, english, german, name="train"):
    """Writes bytes to `name.en` and `name.de`. Returns the prefix."""
    (folder / f"{name}.en").write_bytes(english)
    (folder / f"{name}.de").write_bytes(german)
    return folder / name


def test_files_give_their_pairs_again_and_again(tmp_path):
    prefix = write_pair(tmp_path, b"a\nb c\n", "ä\nß d\n".encode())
    pairs = kt.read_parallel_files([prefix], "en", "de")
    assert list(pairs) == list(pairs) == [("a", "ä"), ("b c", "ß d")]
    swapped = kt.read_parallel_files([str(prefix)], "de", "en")
    assert list(swapped) == [("ä", "a"), ("ß d", "b c")]


def test_several_corpora_and_gzip(tmp_path):
    first = write_pair(tmp_path, b"a\nb\n", b"c\nd\n", "first")
    second = tmp_path / "second"
    for language, content in (("en", b"e\nf"), ("de", b"g\nh")):
        with gzip.open(f"{second}.{language}.gz", "wb") as file:
            file.write(content)
    third = tmp_path / "third.csv"
    third.write_text("id,x,y\n1,i,j\n")
    names = [first, second, third]
    pairs = kt.read_parallel_files(names, "en", "de", columns=("x", "y"))
    wanted = [("a", "c"), ("b", "d"), ("e", "g"), ("f", "h"), ("i", "j")]
    assert list(pairs) == wanted and pairs.sizes == [2, 2, 1]


def test_lines_end_at_newlines_alone(tmp_path):
    english = "\ufeffa\u2028b\r\nc\x0bd\x85e\x1c\n\n f\u00a0 g".encode()
    prefix = write_pair(tmp_path, english, b"1\n2\n3\n4\n")
    pairs = kt.read_parallel_files([prefix], "en", "de")
    # White space beyond ASCII is left to SentencePiece, as in translation.
    lines = ["a\u2028b", "c d\x85e\x1c", "", "f\xa0 g"]
    assert [source for source, _ in pairs] == lines


def test_missing_files_are_named(tmp_path):
    (tmp_path / "train.en").write_text("a\n")
    with pytest.raises(FileNotFoundError, match=r"train\.de or .*de\.gz$"):
        kt.read_parallel_files([tmp_path / "train"], "en", "de")


def test_line_counts_must_agree(tmp_path):
    prefix = write_pair(tmp_path, b"a\nb\nc\n", b"a\nb\n")
    message = r"Received: 3 in .*train\.en, 2 in .*train\.de"
    with pytest.raises(ValueError, match=message):
        kt.read_parallel_files([prefix], "en", "de")


def test_invalid_utf8_is_located(tmp_path):
    prefix = write_pair(tmp_path, b"a\nb\nc\n", b"a\nb\nc\xfc\n")
    with pytest.raises(ValueError, match=r"train\.de, line 3: not UTF-8.*2 of"):
        kt.read_parallel_files([prefix], "en", "de")


@pytest.mark.parametrize("encoding", ["utf-16", "utf-16-le", "utf-16-be"])
@pytest.mark.parametrize("zipped", [False, True])
def test_utf_16_is_refused(tmp_path, encoding, zipped):
    text = "\nein Hund läuft\n".encode(encoding)
    prefix = write_pair(tmp_path, b"\na dog runs\n", text)
    path = tmp_path / "train.de"
    if zipped:
        path.unlink()
        path = tmp_path / "train.de.gz"
        path.write_bytes(gzip.compress(text))
    with pytest.raises(ValueError, match=f"^{path}: .* UTF-16, or no"):
        kt.read_parallel_files([prefix], "en", "de")


def test_what_is_text_in_utf_8_is_read_as_it_is():
    late = [b"x" * pairs_module.FIRST_BYTES + b"\n", b"a\0b\n"]
    for lines in ([b"\xef\xbb\xbfa\n", b"\xff\xfe"], late, []):
        assert list(pairs_module.text_lines(lines, "x")) == lines


def test_a_corpus_must_have_lines(tmp_path):
    prefix = write_pair(tmp_path, b"", b"")
    with pytest.raises(ValueError, match="lines in the corpus. Rec.*train"):
        kt.read_parallel_files([prefix], "en", "de")
    with pytest.raises(ValueError, match="must be a list"):
        kt.read_parallel_files(str(prefix), "en", "de")
    with pytest.raises(ValueError, match="must be a list"):
        kt.read_parallel_files([], "en", "de")


@pytest.mark.parametrize("corruption", ["truncated", "no gzip"])
def test_corrupt_gzip_is_an_error(tmp_path, corruption):
    zipped = gzip.compress(b"a b c\n" * 100)
    broken = zipped[:-12] if corruption == "truncated" else b"a b c\n"
    (tmp_path / "train.en.gz").write_bytes(broken)
    (tmp_path / "train.de.gz").write_bytes(zipped)
    with pytest.raises(ValueError, match=r"train\.en\.gz: corrupt gzip"):
        kt.read_parallel_files([tmp_path / "train"], "en", "de")


@pytest.fixture(scope="module")
def tfds_dir(tmp_path_factory):
    """A directory with the prepared data set `tiny_translate`."""
    import tensorflow_datasets as tfds

    english, german = zip(*make_pairs(50), strict=True)
    folder = tmp_path_factory.mktemp("tfds")
    tfds.dataset_builders.store_as_tfds_dataset(
        name="tiny_translate",
        version="1.0.0",
        data_dir=folder,
        features=tfds.features.Translation(languages=["de", "en"]),
        split_datasets={
            "train": tf.data.Dataset.from_tensor_slices(
                {"en": list(english), "de": list(german)}
            )
        },
    )
    return folder


def test_tfds_gives_its_pairs_again_and_again(tfds_dir):
    pairs = pairs_module.read_tfds(
        "tiny_translate", "train", "en", "de", tfds_dir
    )
    assert sorted(pairs) == sorted(make_pairs(50))
    assert list(pairs) == list(pairs)
    swapped = pairs_module.read_tfds(
        "tiny_translate", "train", "de", "en", tfds_dir
    )
    assert list(swapped) == [(german, english) for english, german in pairs]
    part = pairs_module.read_tfds(
        "tiny_translate", "train[:10]", "en", "de", tfds_dir
    )
    assert list(part) == list(pairs)[:10]


def test_tfds_errors_are_clear(tfds_dir):
    with pytest.raises(ValueError, match="among de, en. Received: 'fr'"):
        pairs_module.read_tfds("tiny_translate", "train", "en", "fr", tfds_dir)
    with pytest.raises(ValueError, match=r"^No such data set: .*found\.\)$"):
        pairs_module.read_tfds("no_such_set", "train", "en", "de", tfds_dir)
    with pytest.raises(ValueError, match="no_split"):
        pairs_module.read_tfds(
            "tiny_translate", "no_split", "en", "de", tfds_dir
        )


def test_what_would_be_downloaded_is_told(tfds_dir, tmp_path):
    assert pairs_module.check_prepared("tiny_translate", tfds_dir) is None
    with pytest.raises(ValueError) as error:
        pairs_module.check_prepared("wmt14_translate/de-en", tmp_path)
    assert str(error.value) == (
        f"wmt14_translate/de-en is not in {tmp_path}, and a dry run does not"
        " download it; tfds build wmt14_translate/de-en"
        f" --data_dir={tmp_path} does"
    )


def test_a_file_in_place_of_a_prefix_is_told(tmp_path):
    write_pair(tmp_path, b"a\n", b"b\n")
    for name in ("train.en", "train.de"):
        with pytest.raises(
            FileNotFoundError,
            match=rf"expected PREFIX .*train\.{name[-2:]}, which is a file",
        ):
            kt.read_parallel_files([tmp_path / name], "en", "de")


def test_a_plain_file_is_taken_before_its_gzip(tmp_path):
    prefix = write_pair(tmp_path, b"plain\n", b"plain\n")
    with gzip.open(f"{prefix}.en.gz", "wb") as file:
        file.write(b"zipped\n")
    assert pairs_module.find_file(prefix, "en").suffix == ".en"
