"""The maximum lengths of sources and outputs, for every search engine."""

import dataclasses
from collections.abc import Sequence

from keras_transformer.config import DecodingConfig, TransformerConfig


@dataclasses.dataclass(eq=False)
class Limits:
    """The length limits of models and their search, in tokens."""

    configs: Sequence[TransformerConfig]
    decoding: DecodingConfig
    max_source_length: int  # of a source in tokens, EOS included

    @property
    def position_limit(self) -> int | None:
        """The smallest number of learned positions, None without any."""
        limits = [config.position_limit for config in self.configs]
        return min((n for n in limits if n is not None), default=None)

    @property
    def max_target_length(self) -> int:
        """Maximum length of an output in tokens, EOS included."""
        return self.output_limit(self.max_source_length)

    def output_limit(self, source_length: int) -> int:
        """Computes the maximum length of an output in tokens, EOS included.

        `source_length` is in tokens, EOS excluded.
        """
        limits = (
            source_length + self.decoding.extra_length,
            self.position_limit,
            self.decoding.max_output_length,
        )
        return min(limit for limit in limits if limit is not None)

    def prefix_limit(self, source_length: int) -> int:
        """Computes the maximum length of a prefix in tokens."""
        return self.output_limit(source_length)

    @property
    def warnings(self) -> list[str]:
        """A list with a warning if learned positions shorten outputs."""
        limit, extra_length = self.position_limit, self.decoding.extra_length
        wanted = self.max_source_length + extra_length
        if limit is None or wanted <= limit:
            return []
        return [
            f"outputs end at max_positions={limit} tokens; max_source_length="
            f"{self.max_source_length} and {extra_length=} would allow {wanted}"
        ]
