"""Packaging of keras_transformer: library, trainers and exporters."""

import pathlib
import re

from setuptools import setup

HERE = pathlib.Path(__file__).parent
# Read, not imported: nothing that the package needs may be installed yet.
(VERSION,) = re.findall(
    r'^__version__ = "(.+?)"',
    (HERE / "keras_transformer" / "__init__.py").read_text(encoding="utf-8"),
    re.MULTILINE,
)
ONNX = ["onnx>=1.23,<2", "onnxruntime>=1.31,<2", "tf2onnx>=1.17,<2"]
TFLITE = ["ai-edge-litert>=2.3,<3"]
CTRANSLATE2 = ["ctranslate2>=4.8,<5"]
IMPORT = ["PyYAML>=6,<7"]  # the options of Marian and OpenNMT-tf
PNG = ["resvg-py>=0.5,<0.6"]  # draws the figures as .png
CLIENT = ["tensorflow-serving-api>=2.21,<2.22"]

setup(
    name="keras_transformer",
    version=VERSION,
    description=(
        "The Transformer of 'Attention Is All You Need' for TensorFlow and"
        " Keras 3: train, translate, ship."
    ),
    long_description=(HERE / "README.md").read_text(encoding="utf-8"),
    long_description_content_type="text/markdown",
    license="Apache-2.0",
    project_urls={"Paper": "https://arxiv.org/abs/1706.03762"},
    keywords=[
        "neural machine translation",
        "Transformer",
        "attention",
        "TensorFlow",
        "Keras",
    ],
    classifiers=[
        "Development Status :: 4 - Beta",
        "Intended Audience :: Developers",
        "Intended Audience :: Science/Research",
        "Operating System :: POSIX :: Linux",
        "Programming Language :: Python :: 3",
        "Programming Language :: Python :: 3 :: Only",
        "Programming Language :: Python :: 3.11",
        "Topic :: Scientific/Engineering :: Artificial Intelligence",
        "Topic :: Text Processing :: Linguistic",
        "Typing :: Typed",
    ],
    python_requires=">=3.11",
    packages=[
        "keras_transformer",
        "keras_transformer.data",
        "keras_transformer.decoding",
        "keras_transformer.figures",
        "keras_transformer.layers",
        "trainers",
        "trainers.importers",
        "trainers.parsing",
        "trainers.phrasebook",
        "savedmodel",
    ],
    package_data={
        "keras_transformer": ["py.typed"],
        "keras_transformer.figures": ["*.css", "*.html", "*.js"],
        "trainers": ["configs/*.flags", "*.css", "*.html"],
    },
    install_requires=[
        "absl-py>=2.3,<3",
        "importlib_resources>=6,<8",  # tensorflow-datasets imports it
        "keras>=3.15,<3.16",
        "numpy>=2.0,<3",
        "regex>=2024.5",  # what sacreBLEU requires, too
        "sacrebleu>=2.6,<3",
        "sentencepiece>=0.2.1,<0.3",
        "tensorboard>=2.20,<3",
        "tensorflow>=2.21,<2.22",
        "tensorflow-datasets>=4.9.9,<5",
        "tensorflow-text>=2.21,<2.22",
        "tqdm>=4.67,<5",
    ],
    extras_require={
        "client": CLIENT,
        "ctranslate2": CTRANSLATE2,
        "import": IMPORT,
        # The tokenizers of BLEU for Japanese and Korean.
        "ja": ["sacrebleu[ja]>=2.6,<3"],
        "ko": ["sacrebleu[ko]>=2.6,<3"],
        "onnx": ONNX,
        "png": PNG,
        "tflite": TFLITE,
        "test": [
            *CLIENT,
            *CTRANSLATE2,
            *IMPORT,
            *ONNX,
            *PNG,
            *TFLITE,
            "jax>=0.10,<0.11",
            "mypy>=1.20,<2",
            "pytest>=8,<10",
            "pytest-xdist>=3.8,<4",
            "ruff>=0.14,<0.16",
            "setuptools>=77",  # builds the wheel that a test installs
        ],
    },
)
