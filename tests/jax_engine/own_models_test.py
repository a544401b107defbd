"""Users' own models under JAX: cells of the table of `own_models_test`."""

import itertools

import keras
import numpy as np
import own_cells
import own_models
import pytest
from own_cells import ANYWHERE, Cell
from tolerance import assert_close

BODY, FORM = "Attention", "subclass"
BODIES = ("Tied", "DecoderLayer", "Whole")
CELLS = [
    (body, form, column)
    for body, form, column in itertools.product(
        own_models.BODIES, own_models.FORMS, ANYWHERE
    )
    if (body, form) == (BODY, FORM)
    or column == "keras_file"
    and (body == BODY or form == FORM and body in BODIES)
]


@pytest.mark.parametrize("body, form, column", CELLS, ids=str)
def test_a_cell_is_equal_or_refused(body, form, column, tmp_path):
    cell = Cell(body, form, tmp_path)
    if sentence := own_cells.refusal(body, form, column):
        with pytest.raises(ValueError, match=sentence):
            cell.run(column)
    else:
        cell.run(column)


def test_devices_share_a_batch():
    """Rows on eight devices, under `keras.distribution`."""
    expected = own_cells.reference(BODY)
    ids, labels = own_models.batches(rows=16)
    found = []
    for number in (1, 8):
        devices = keras.distribution.list_devices()[:number]
        mesh = keras.distribution.DataParallel(devices=devices)
        with mesh.scope():
            model = own_models.make(BODY, FORM, expected.weights)
            own_models.compiled(model)
            history = model.fit(
                ids, labels, batch_size=8, epochs=2, shuffle=False, verbose=0
            ).history
            found.append((history, model.get_weights()))
    assert_close(found[1], found[0])
    assert np.isfinite(found[0][0]["loss"]).all()
