"""Checks the searches on the backend KERAS_BACKEND, and prints its name.

    KERAS_BACKEND=torch python tests/programs/search_laws.py

The searches are few and small, as JAX compiles every operation of every shape.
"""

import pathlib
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path[:0] = map(str, (ROOT, ROOT / "tests", ROOT / "tests/core"))

import decoding_test as laws  # noqa: E402
import keras  # noqa: E402
import numpy as np  # noqa: E402

laws.test_greedy_takes_the_lowest_of_equal_ids()

model = laws.ScriptedModel(6)
sentences, limits = np.arange(3, dtype="int32"), np.array([4, 4, 2])
prefix = np.array([[4, 6], [5, -1], [0, 0]])  # -1: no such id
options = {"no_repeat_ngram": 2}
result = laws.run_beam(model, sentences, limits, 3, prefix=prefix, **options)
laws.assert_failed(result, 1)
for sentence, ids in ((0, (4, 6)), (2, ())):
    expected = laws.expected_beam(
        model, sentence, limits[sentence], 3, 0.6, prefix=ids, **options
    )
    laws.assert_hypotheses(result, sentence, expected)
print(keras.backend.backend())
