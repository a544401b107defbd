"""LibreTranslate's API, as its clients expect it.

Like LibreTranslate, it ignores unknown fields.
"""

import itertools
from urllib.parse import quote

from starlette.responses import FileResponse

from keras_transformer import documents
from keras_transformer.data.languages import name_of
from keras_transformer.text.writing import direction
from trainers.serving import requests
from trainers.serving.requests import TERMINOLOGY, Values
from trainers.serving.service import Service
from trainers.serving.spec import FILE, FILE_FORM, TEXT, TEXTS, Api, Get, Post

# Fields that are texts, and their defaults.
TEXT_FIELDS = {"source": None, "target": None, "format": "text", "adapter": ""}


async def translate(service: Service, fields: Values) -> dict:
    """Answers /translate, for one text or a list of texts."""
    texts = requests.read_texts(fields, "q", service.limits)
    alternatives = requests.read_alternatives(fields, service.limits)
    given = {
        name: requests.read_text(fields, name, default)
        for name, default in TEXT_FIELDS.items()
    }
    options, _ = requests.read_options({**given, "n_best": 1 + alternatives})
    terminology = requests.read_terminology(
        fields, service.glossaries, service.limits
    )
    # Few clients know the beam size, so they may get fewer alternatives.
    found = await service.translate(
        texts, options, terminology=terminology, may_be_fewer=True
    )
    answer: dict[str, list] = {"translatedText": [t.texts[0] for t in found]}
    if alternatives:
        answer["alternatives"] = [t.texts[1:] for t in found]
    if options.source.lower() == requests.AUTO:
        answer["detectedLanguage"] = [
            _language(t.source, t.confidence) for t in found
        ]
    # Not in LibreTranslate, which truncates silently.
    notes = [t.notes for t in found]
    if any(notes):
        answer["notes"] = notes
    if isinstance(fields["q"], list):
        return answer
    return {name: value for name, [value] in answer.items()}


async def translate_file(service: Service, fields: Values) -> dict:
    """Answers /translate_file with the address of the translated file."""
    name, file = requests.read_file(fields, "file")
    source, target = (
        requests.read_text(fields, code) for code in ("source", "target")
    )
    terminology = requests.read_terminology(
        fields, service.glossaries, service.limits
    )
    adapter = requests.read_text(fields, "adapter", "")
    columns = requests.read_columns(fields)
    key, notes = await service.translate_file(
        *(name, file, source, target, terminology, adapter),
        *(fields["client"], columns),
    )
    base = (service.options.public_url or fields["address"]).rstrip("/")
    address = f"{base}/download_file/{quote(key)}"
    return {"translatedFileUrl": address} | ({"notes": notes} if notes else {})


def download(service: Service, key: str) -> FileResponse:
    """Answers /download_file with a translated file."""
    path, name = service.downloads.find(key)
    return FileResponse(
        path,
        media_type="application/octet-stream",
        filename=name,
        headers={"Cache-Control": "no-store"},
    )


async def detect(service: Service, fields: Values) -> list[dict]:
    """Answers /detect with the languages of a text, most probable first."""
    texts = requests.read_texts(fields, "q", service.limits)
    found = service.detector.rank("\n".join(texts))
    return [_language(*language) for language in found]


def _language(code, confidence):
    return {"confidence": confidence, "language": code}


def list_languages(service: Service) -> list[dict]:
    """Answers /languages. `direction` is for our own page.

    Languages without targets are also listed: clients look up both languages of
    a pair.
    """
    targets_of: dict[str, list[str]] = {}
    for source, target in service.pairs:
        targets_of.setdefault(source, []).append(target)
    targets = itertools.chain(*targets_of.values())
    return [
        {
            "code": code,
            "name": name_of(code),
            "targets": targets_of.get(code, []),
            "direction": direction(code),
        }
        for code in dict.fromkeys([*targets_of, *targets])
    ]


def describe(service: Service) -> dict:
    """Answers /frontend/settings. `glossaries` and below are for our page."""
    (source, target), pair = next(iter(service.pairs.items()))
    decoding, needs_key = pair.translator.decoding, service.keys is not None
    n_best = service.max_n_best
    if decoding.sampling:
        n_best = min(n_best, decoding.num_samples)
    has_terms = not decoding.sampling and pair.translator.has("glossary")
    has_files = service.limits.max_file_bytes > 0
    return {
        "apiKeys": needs_key,
        "keyRequired": needs_key,
        "charLimit": service.limits.max_characters,
        "frontendTimeout": 500,
        "suggestions": False,
        "filesTranslation": has_files,
        "supportedFilesFormat": requests.SUFFIXES if has_files else [],
        "language": {
            "source": {"code": source, "name": name_of(source)},
            "target": {"code": target, "name": name_of(target)},
        },
        "glossaries": list(service.glossaries),
        "maxTerms": service.limits.max_terms * has_terms,
        "models": [card.splitlines()[0][2:] for card in service.cards],
        "adapters": [name for name, _ in service.options.adapters],
        "attention": pair.translator.has("attention_figure"),
        "search": {
            "beam_size": {
                "default": decoding.beam_size,
                "max": service.max_beam_size(pair),
            },
            "length_penalty": {
                "default": decoding.length_penalty,
                "min": 0,
                "max": 10,
            },
            "n_best": {"max": n_best},
        },
    }


API = Api(
    gets={
        "/languages": Get(
            "The languages, each with those it is translated into.",
            list_languages,
        ),
        "/download_file/{key}": Get("A translated file.", download),
        "/frontend/settings": Get("Limits and defaults, for pages.", describe),
    },
    posts={
        "/translate": Post(
            "LibreTranslate's: translates a text or a list of texts.",
            translate,
            {"q": TEXTS, "source": TEXT, "target": TEXT},
            {
                "format": {**TEXT, "enum": documents.TEXT_FORMATS},
                "alternatives": {"type": "integer", "minimum": 0},
                "adapter": TEXT,
                **TERMINOLOGY,
            },
        ),
        "/translate_file": Post(
            "LibreTranslate's: translates a file; the answer has its address.",
            translate_file,
            {"file": FILE, "source": TEXT, "target": TEXT},
            {"adapter": TEXT, "columns": TEXT, "into": TEXT, **TERMINOLOGY},
            FILE_FORM,
        ),
        "/detect": Post(
            "LibreTranslate's: the languages that a text may be in.",
            detect,
            {"q": TEXT},
        ),
    },
)
