"""The Transformer of "Attention Is All You Need" for TensorFlow and Keras 3.

Letters of shapes, in every docstring:
    B  sentences in a batch            H  attention heads
    S  source positions                K  key size of a head; Vd its value size
    T  target positions                F  width of the feed-forward layer
    D  d_model                         V  tokens in the vocabulary
    W  hypotheses of a beam            N  B * W rows in a search

`__init__.pyi` lists the public names. Each is imported at its first use, so
that importing the package imports neither Keras nor TensorFlow. Layers, loss,
schedule and search run on every Keras backend; `tf.data` and exports need
TensorFlow.
"""

import importlib
import sys

import lazy_loader

from keras_transformer.base.machine import prefer_onednn
from keras_transformer.commands.quiet import FirstImport, QuietTensorFlow

__version__ = "0.2.0"  # the only place; setup.py reads it from here

prefer_onednn()
sys.meta_path.insert(0, QuietTensorFlow())

_name, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)


def __getattr__(name):
    value = _name(name)
    _register()
    return value


def _register():
    """Registers our classes with Keras by importing them, if Keras is imported.

    Keras loads a file with another package's classes only if they are
    registered.
    """
    if "keras" in sys.modules:
        importlib.import_module("keras_transformer.model")
        importlib.import_module("keras_transformer.training.registration")


def _execute_keras(execute, module):
    execute(module)
    # Not in a command, which imports what it needs, nor while a module of ours
    # is being imported, which the others would find half imported.
    own = [m for name, m in sys.modules.items() if name.startswith(__name__)]
    is_own = any(getattr(m.__spec__, "_initializing", False) for m in own)
    if not is_own and f"{__name__}.commands.startup" not in sys.modules:
        _register()


_register()
sys.meta_path.insert(0, FirstImport("keras", _execute_keras))
