"""The server's own API: search options of a request, and all that is known."""

from starlette.exceptions import HTTPException

from keras_transformer.translation.requests import make_requests
from trainers.serving import requests
from trainers.serving.requests import Values
from trainers.serving.service import Service

OTHERS = ("text", "prefix", "api_key")  # fields that are read one by one


async def translate(service: Service, fields: Values) -> dict:
    """The answer of /v1/translate."""
    options, search = requests.read_options(fields, OTHERS)
    texts = requests.read_texts(fields, "text", service.limits)
    prefixes = _read_prefixes(service, fields, len(texts))
    for name, has_effect, needed in (
        ("prefix", prefixes is None or not options.split, "split=false"),
        ("split=false", options.split or options.format == "text", "text"),
        ("seed", options.seed is None or search.get("sampling"), "sampling"),
    ):
        if not has_effect:
            raise HTTPException(400, f"{name} needs {needed}")
    found = await service.translate(
        make_requests(texts, prefixes), options, search
    )
    return {
        "translations": [
            {
                "source": translated.source,
                "text": translated.texts[0],
                "sentences": [
                    _sentence(sentence, before, found, options.n_best)
                    for sentence, before, found in translated.sentences
                ],
            }
            for translated in found
        ]
    }


async def draw_attention(service: Service, fields: Values) -> str:
    """The answer of /v1/attention: a page."""
    source, target, *texts = (
        requests.read_text(fields, name)
        for name in ("source", "target", "text", "translation")
    )
    for name in ("text", "translation"):
        requests.read_texts(fields, name, service.limits)
    return await service.draw_attention(
        service.find_pair(source, target), *texts
    )


def _read_prefixes(service, fields, number):
    """The prefixes, as many as texts; None if all are empty."""
    if fields.get("prefix", "") in ("", [], [""] * number):
        return None
    prefixes = requests.read_texts(fields, "prefix", service.limits)
    if len(prefixes) != number:
        raise HTTPException(
            400,
            f"prefix must have one text for each text. Received:"
            f" {len(prefixes)} for {number}",
        )
    return prefixes


def _sentence(source, before, found, n_best):
    """A sentence of the answer."""
    texts, _, scores, notes = found.translation
    hypotheses: list[dict] = [
        {"text": text, "score": score}
        for text, score in zip(texts, scores, strict=True)
    ]
    for hypothesis, details in zip(hypotheses, found.details, strict=False):
        hypothesis |= details
    return {
        "source": source,
        "before": before,
        "source_words": source.split(),
        "notes": notes,
        "hypotheses": hypotheses[:n_best],
    }
