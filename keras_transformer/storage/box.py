"""The box: the packed models that come with the package.

    keras_transformer/box/NAME/

They answer where no work directory is given. This module chooses one by the
languages.
"""

import functools
import pathlib
from collections.abc import Sequence
from logging import getLogger

from keras_transformer.base.refusals import expect
from keras_transformer.storage.card import read_card
from keras_transformer.storage.workdir import WorkDirectory

BOX = pathlib.Path(__file__).parents[1] / "box"
NAME = "box"  # as the value of `init_from`
progress = getLogger(__name__)  # which commands show


def find(
    source_language: str | None = None, target_language: str | None = None
) -> list[str]:
    """Returns the paths of the models that translate between two languages.

    A language may also be several, separated by commas; None is any. Raises
    ValueError if there is none, or if a model is damaged.
    """
    models = [WorkDirectory(path) for path in sorted(BOX.glob("[!._]*/"))]
    if not models:
        raise ValueError(
            "expected --workdir=DIR: this installation has no models in"
            f" {BOX}. Received: no workdir"
        )
    found = []
    for model in models:
        expect(model.read_package(), "a packed model", "none", where=model.path)
        model.check_package()
        languages = model.read_languages()
        if _has(languages.sources, source_language) and _has(
            languages.targets, target_language
        ):
            found.append(str(model.path))
    if not found:
        raise _no_choice(models, source_language, target_language)
    return found


def choose(
    source_language: str | None = None, target_language: str | None = None
) -> str:
    """Returns the path of the only model that `find` finds, and logs its use.

    Raises the errors of `find`, and ValueError if there are several.
    """
    languages = source_language, target_language
    found = find(*languages)
    if len(found) > 1:
        raise _no_choice(map(WorkDirectory, found), *languages)
    tell(tuple(found))
    return found[0]


@functools.cache
def tell(paths: Sequence[str]) -> None:
    """Logs which models answer, and what they are for, once in a process."""
    for path in paths:
        purpose = read_card(WorkDirectory(path)).facts.purpose
        progress.info(
            "no --workdir: the package's model %s%s (kt-translate --about)",
            pathlib.Path(path).name,
            f", for {purpose}" * bool(purpose),
        )


def _has(languages, wanted):
    return wanted is None or {*wanted.split(",")} <= {*languages}


def _no_choice(models, source, target):
    pairs = [pair for m in models for pair in m.read_languages().pairs]
    return ValueError(
        "expected --workdir=DIR, or --source_language and --target_language of"
        f" the package's models: {', '.join(map('-'.join, pairs))}. Received:"
        f" source_language={source!r}, target_language={target!r}"
    )
