"""LibreTranslate's API: what its clients send and expect.

Fields that it does not know are ignored, as there.
"""

from starlette.exceptions import HTTPException

from keras_transformer.figures.writing import direction
from trainers.serving import requests
from trainers.serving.languages import name_of
from trainers.serving.requests import TranslationRequest, Values
from trainers.serving.service import Service

FORMATS = ("text", "html")


async def translate(service: Service, fields: Values) -> dict:
    """The answer of /translate: of one text, or of a list of texts."""
    texts = requests.read_texts(fields, "q", service.limits)
    source = requests.read_text_option(fields, "source")
    target = requests.read_text_option(fields, "target")
    text_format = requests.read_text_option(fields, "format", "text")
    alternatives = requests.read_alternatives(fields, service.limits)
    if text_format not in FORMATS:
        raise HTTPException(
            400,
            f"format must be one of {', '.join(FORMATS)}. Received:"
            f" format={text_format!r}",
        )
    detected = []
    if source == "auto":
        detected = [_detect(service, text)[0] for text in texts]
    sources = [found["language"] for found in detected] or [source] * len(texts)
    pairs = [service.find_pair(source, target) for source in sources]
    # Not more than there are: few clients know how wide the beam is.
    widest = min(pair.translator.decoding.beam_size for pair in pairs)
    n_best = min(1 + alternatives, widest)
    options = TranslationRequest(format=text_format, n_best=n_best)
    found = await service.translate(texts, pairs, options)
    answer: dict[str, list] = {"translatedText": [t.texts[0] for t in found]}
    if alternatives:
        answer["alternatives"] = [t.texts[1:] for t in found]
    if detected:
        answer["detectedLanguage"] = detected
    # Not in LibreTranslate, which truncates silently.
    notes = [t.notes for t in found]
    if any(notes):
        answer["notes"] = notes
    if isinstance(fields["q"], list):
        return answer
    return {name: value for name, [value] in answer.items()}


async def detect(service: Service, fields: Values) -> list[dict]:
    """The answer of /detect: the languages of a text, most probable first."""
    texts = requests.read_texts(fields, "q", service.limits)
    return _detect(service, "\n".join(texts))


def _detect(service, text):
    return [
        {"confidence": confidence, "language": code}
        for code, confidence in service.detector.rank(text)
    ]


def list_languages(service: Service) -> list[dict]:
    """The answer of /languages; `direction` is for our own page.

    A language without targets is here, too: clients look for both languages of
    a pair in this list.
    """
    sources, targets = zip(*service.pairs, strict=True)
    return [
        {
            "code": code,
            "name": name_of(code),
            "targets": [t for s, t in service.pairs if s == code],
            "direction": direction(code),
        }
        for code in dict.fromkeys(sources + targets)
    ]


def describe(service: Service) -> dict:
    """The answer of /frontend/settings; `search` is for our own page."""
    (source, target), pair = next(iter(service.pairs.items()))
    decoding, needs_key = (
        pair.translator.decoding,
        bool(service.options.api_keys),
    )
    most = service.max_beam_size(pair)
    alpha = decoding.length_penalty
    return {
        "apiKeys": needs_key,
        "keyRequired": needs_key,
        "charLimit": service.limits.max_characters,
        "frontendTimeout": 500,
        "suggestions": False,
        "filesTranslation": False,
        "supportedFilesFormat": [],
        "language": {
            "source": {"code": source, "name": name_of(source)},
            "target": {"code": target, "name": name_of(target)},
        },
        "search": {
            "beam_size": {"default": decoding.beam_size, "max": most},
            "length_penalty": {"default": alpha, "min": 0, "max": 10},
            "n_best": {"max": service.max_n_best},
        },
    }
