"""The states of a model's random generators, which dropout samples from."""

import typing


def seed_variables(model: typing.Any) -> list[typing.Any]:
    """The states of a model's random generators, Keras variables `[2]`.

    Keras counts them among `variables`, not among `weights`, and does not save
    them.
    """
    weights = {id(variable) for variable in model.weights}
    return [v for v in model.variables if id(v) not in weights]
