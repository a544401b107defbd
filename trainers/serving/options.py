"""The options of the server."""

import re

from keras_transformer.base.fields import Fields, hp
from keras_transformer.base.refusals import expect


class ServeOptions(Fields):
    """The server."""

    host: str = hp(
        "127.0.0.1",
        "Address to listen on. The default accepts connections of this machine"
        " only; 0.0.0.0: all network interfaces.",
        common=True,
    )
    port: int = hp(
        8080, "Port; 0: any free one.", low=0, high=2**16 - 1, common=True
    )
    public_url: str = hp(
        "",
        "Address of the server as clients see it, such as"
        " https://example.org/nmt, for the addresses of translated files."
        " Default: from the Host header.",
    )
    api_keys: str | None = hp(
        None,
        "File of API keys, one a line; clients must give one. SIGHUP reads"
        " the file again. Default: no key is needed.",
        common=True,
    )
    cors_origins: tuple[str, ...] = hp(
        (),
        "Origins, such as https://example.org, whose pages may use the server;"
        " *: all. Default: none.",
    )
    glossaries: str | None = hp(
        None,
        "Directory of glossaries, NAME.tsv, which requests choose by NAME."
        " SIGHUP reads them again; without them and --api_keys, it ends the"
        " server.",
        common=True,
    )
    access_log: str = hp(
        "",
        "File that gets a line about each answer, in the Common Log Format and"
        " without texts; -: standard error. Default: none.",
        common=True,
    )
    adapter: tuple[str, ...] = hp(
        (),
        "Low-rank adapters that requests choose by NAME: NAME=DIR, or"
        " several, separated by commas. DIR is a work directory of kt-train"
        " --lora_rank with the weights of --workdir.",
    )
    max_batch_tokens: int = hp(
        4096,
        "Maximum number of source tokens in a batch. A token counts more if its"
        " request has a wider search than the server's, or details.",
        low=1,
    )
    max_wait_ms: float = hp(
        5.0,
        "Milliseconds that a batch waits for more requests while the model has"
        " nothing to do.",
        low=0.0,
        high=1e4,
    )
    max_queue_tokens: int = hp(
        65536,
        "Maximum number of source tokens in the queue; further requests are"
        " refused with 429. So are requests that would wait longer than"
        " --request_seconds, by the speed of the last batches.",
        low=1,
    )
    max_searches: int = hp(
        8,
        "Combinations of search options that stay in memory, for each model.",
        low=1,
        high=10**4,
    )
    request_seconds: float = hp(
        60.0,
        "Timeout in seconds from the head of a request; then status 504.",
        low=0.001,
        high=1e5,
        common=True,
    )
    download_seconds: float = hp(
        600.0,
        "Seconds for which a translated file can be downloaded.",
        low=0.001,
        high=1e6,
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        expect(
            re.match("https?://[^/]|$", self.public_url),
            "public_url that begins with http:// or https://",
            f"{self.public_url=}",
        )
        expect(
            len(dict(self.adapters)) == len(self.adapters)
            and all(map(all, self.adapters)),
            "adapter as NAME=DIR[,NAME=DIR ...], each name once",
            adapter=",".join(self.adapter),
        )

    @property
    def adapters(self) -> list[tuple[str, str]]:
        """The name and the work directory of each adapter."""
        parts = (text.partition("=") for text in self.adapter)
        return [(name, path) for name, _, path in parts]


class Limits(Fields):
    """Limits of a request and of a client."""

    max_body_bytes: int = hp(262144, "Bytes of a body.", low=1)
    max_file_bytes: int = hp(
        4 * 2**20, "Bytes of a body that has a file; 0: no files.", low=0
    )
    max_reader_mib: int = hp(
        256,
        "MiB of memory that a process may use to read a file, besides 128 for"
        " each MiB of the file.",
        low=64,
    )
    max_texts: int = hp(128, "Texts in a request.", low=1)
    max_characters: int = hp(
        10000, "Characters of all texts of a request.", low=1
    )
    max_terms: int = hp(
        1000, "Terms of a glossary that is in the request.", low=0
    )
    max_forms: int = hp(
        2000, "Translations of all terms of such a glossary.", low=0
    )
    max_term_characters: int = hp(
        200, "Characters of a term, and of each of its translations.", low=1
    )
    max_alternatives: int = hp(
        3, "Translations besides the best one.", low=0, high=10**4
    )
    max_beam_size: int = hp(8, "Beam size.", low=1, high=10**4)
    max_connections: int = hp(
        1000, "Open connections; further ones are refused.", low=1
    )
