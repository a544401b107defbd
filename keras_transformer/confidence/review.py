"""A page for the review of a translated document, doubtful sentences first."""

import itertools
import typing
from collections.abc import Sequence

from keras_transformer.commands.startup import load

if typing.TYPE_CHECKING:
    from keras_transformer.confidence.assessment import Assessment
    from keras_transformer.documents.document import Unread


class Row(typing.NamedTuple):
    """A sentence of a document, and its translation.

    Attributes:
        line: Its line in the document, from 1.
        source, translation: The texts.
        assessment: The `Assessment` of the translation, if there is one.
        is_used: Whether the document has the translation, not the source.
    """

    line: int
    source: str
    translation: str
    assessment: "Assessment | None"
    is_used: bool

    @property
    def reasons(self) -> list[str]:
        """Why the translation is doubtful, or is not used."""
        if self.assessment is None:
            return []
        doubt = [] if self.is_used else [self.assessment.doubt]
        return self.assessment.reasons or doubt

    @property
    def words(self) -> list[tuple[str, float | None]]:
        """The words of the translation, each with its probability, if known."""
        words = self.translation.split()
        chances = self.assessment.words[: len(words)] if self.assessment else []
        return [*itertools.zip_longest(words, chances)]


def render(
    rows: Sequence[Row], left: "Sequence[Unread]", languages: tuple[str, str]
) -> str:
    """Renders the page, one HTML file that loads nothing.

    Args:
        rows: The sentences, each with an assessment. Those with a failed check
            come first, then the least probable ones.
        left: The texts of the document that are no sentences.
        languages: The codes of source and target, "" if they are unknown.
    """
    assessment = load("keras_transformer.confidence.assessment")
    pages = load("keras_transformer.figures.pages")
    return pages.render_page(
        __package__,
        "review.html",
        rows=sorted(rows, key=_order),
        left=left,
        languages=languages,
        unsure=assessment.UNSURE,
        doubtful=assessment.DOUBTFUL,
    )


def _order(row):
    return row.assessment.is_at_least(0), row.assessment.probability
