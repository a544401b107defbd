"""The server's own API: search options, scores, probabilities, alignments."""

from starlette.responses import HTMLResponse

from keras_transformer.config import DecodingConfig
from trainers.serving import requests
from trainers.serving.requests import (
    PER_TEXT,
    SEARCH_FIELDS,
    TERMINOLOGY,
    TranslationRequest,
    Values,
)
from trainers.serving.service import Service
from trainers.serving.spec import JSON, TEXT, TEXTS, Api, Post, schemas_of

# Fields that are not in `TranslationRequest`.
OTHERS = ("text", *PER_TEXT, *TERMINOLOGY, "api_key")


async def translate(service: Service, fields: Values) -> dict:
    """Answers /v1/translate."""
    options, search = requests.read_options(fields, OTHERS)
    texts = requests.read_requests(fields, options, service.limits)
    if not options.split and options.format != "text":
        raise requests.BadRequest("split=false needs text")
    terminology = requests.read_terminology(
        fields, service.glossaries, service.limits
    )
    found = await service.translate(texts, options, search, terminology)
    return {
        "translations": [
            {
                "source": translated.source,
                "text": translated.texts[0],
                "sentences": [
                    _sentence(*sentence, options.n_best)
                    for sentence in translated.sentences
                ],
            }
            for translated in found
        ]
    }


async def draw_attention(service: Service, fields: Values) -> HTMLResponse:
    """Answers /v1/attention with a page, for a frame of our own page."""
    source, target, text, translation = (
        requests.read_text(fields, name)
        for name in ("source", "target", "text", "translation")
    )
    for name in ("text", "translation"):
        requests.read_texts(fields, name, service.limits)
    html = await service.draw_attention(
        service.find_pair(source, target),
        text,
        translation,
        requests.read_text(fields, "adapter", ""),
    )
    policy = {"Content-Security-Policy": "frame-ancestors 'self'"}
    return HTMLResponse(html, headers=policy)


def _sentence(source, before, answer, n_best):
    texts, _, scores, notes = answer.translation
    hypotheses: list[dict] = [
        {"text": text, "score": score}
        for text, score in zip(texts, scores, strict=True)
    ]
    for hypothesis, details in zip(hypotheses, answer.details, strict=False):
        hypothesis |= details
    return {
        "source": source,
        "before": before,
        "source_words": source.split(),
        "notes": notes,
        "hypotheses": hypotheses[:n_best],
    }


API = Api(
    posts={
        "/v1/translate": Post(
            "Translates with search options, and returns scores, probabilities"
            " of tokens, alignments and, of a calibrated model, confidence.",
            translate,
            {"text": TEXTS, "target": TEXT},
            {
                **PER_TEXT,
                **TERMINOLOGY,
                **schemas_of(TranslationRequest),
                **schemas_of(DecodingConfig, SEARCH_FIELDS),
            },
            kinds=(JSON,),
        ),
        "/v1/attention": Post(
            "The page of the attention of a translation.",
            draw_attention,
            dict.fromkeys(("text", "translation", "source", "target"), TEXT),
            {"adapter": TEXT},
        ),
    }
)
