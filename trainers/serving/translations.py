"""The server's own API: search options of a request, and all that is known."""

import typing
from collections.abc import Mapping

from trainers.serving import requests
from trainers.serving.requests import ApiError
from trainers.serving.service import Service, Wish

OTHERS = ("text", "prefix", "api_key")  # fields that are read one by one
Fields = Mapping[str, typing.Any]


async def translate(service: Service, fields: Fields) -> dict:
    """The answer of /v1/translate."""
    options, search = requests.read_options(fields, OTHERS)
    texts, _ = requests.read_texts(fields, "text", service.limits)
    prefixes = None
    if "prefix" in fields:
        prefixes = _read_prefixes(service, fields, len(texts))
    for name, has_effect, needed in (
        ("prefix", prefixes is None or not options.split, "split=false"),
        ("split=false", options.split or options.format == "text", "text"),
        ("seed", options.seed is None or search.get("sampling"), "sampling"),
    ):
        if not has_effect:
            raise ApiError(400, f"{name} needs {needed}")
    pairs = []
    for text in texts:
        source = options.source
        if source == "auto":
            source = service.detector.rank(text)[0][0]
        pairs.append(service.find_pair(source, options.target))
    wish = Wish(
        options.format,
        options.split,
        search,
        options.n_best,
        options.details,
        options.seed,
    )
    found = await service.translate(texts, pairs, wish, prefixes)
    return {
        "translations": [
            {
                "source": pair.source,
                "text": translated.texts[0],
                "sentences": [
                    _sentence(*parts, options)
                    for parts in zip(
                        translated.sentences,
                        translated.before,
                        translated.found,
                        strict=True,
                    )
                ],
            }
            for pair, translated in zip(pairs, found, strict=True)
        ]
    }


async def draw_attention(service: Service, fields: Fields) -> str:
    """The answer of /v1/attention: a page."""
    texts = []
    for name in ("text", "translation"):
        [text], _ = requests.read_texts(
            {name: requests.read_text_option(fields, name)},
            name,
            service.limits,
        )
        texts.append(text)
    source, target = (
        requests.read_text_option(fields, name) for name in ("source", "target")
    )
    return await service.draw_attention(
        service.find_pair(source, target), *texts
    )


def _read_prefixes(service, fields, number):
    """The prefixes, as many as texts."""
    value = fields["prefix"]
    if value in ("", []) or value == [""] * number:
        return None
    prefixes, _ = requests.read_texts(fields, "prefix", service.limits)
    if len(prefixes) != number:
        raise ApiError(
            400,
            f"prefix must have one text for each text. Received:"
            f" {len(prefixes)} for {number}",
        )
    return prefixes


def _sentence(source, before, found, options):
    """A sentence of the answer."""
    texts, _, scores, notes = found.translation
    hypotheses: list[dict] = [
        {"text": text, "score": score}
        for text, score in zip(texts, scores, strict=True)
    ]
    for hypothesis, details in zip(hypotheses, found.details, strict=False):
        hypothesis |= {
            "tokens": [word._asdict() for word in details.tokens],
            "words": [word._asdict() for word in details.words],
            "alignment": details.alignment,
        }
    return {
        "source": source,
        "before": before,
        "source_words": source.split(),
        "notes": notes,
        "hypotheses": hypotheses[: options.n_best],
    }
