"""The server's metrics, for Prometheus."""

import prometheus_client

from trainers.serving.batcher import Batch

# Bounds of buckets: from a cached answer to the deadline of a request.
SECONDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60)
HUNG_UP = 499  # the status if the client has hung up
POWERS_OF_TWO = tuple(1 << i for i in range(14))


class Metrics:
    """The metrics of one server; none contains a user's text."""

    def __init__(self) -> None:
        self.registry = registry = prometheus_client.CollectorRegistry()
        prometheus_client.ProcessCollector(registry=registry)
        common: dict = {"namespace": "translation", "registry": registry}
        self.engine = prometheus_client.Info(
            "engine", "What searches, and the type it computes in.", **common
        )
        self.requests = prometheus_client.Counter(
            "requests", "Answered requests.", ["path", "status"], **common
        )
        self.refusals = prometheus_client.Counter(
            "refusals", "Refused requests.", ["path", "status"], **common
        )
        self.characters = prometheus_client.Counter(
            "source_characters",
            "Characters of translated sentences.",
            ["source", "target"],
            **common,
        )
        self.seconds = prometheus_client.Histogram(
            "request_seconds",
            "Seconds from a request to its answer.",
            ["path"],
            buckets=SECONDS,
            **common,
        )
        self.waits = prometheus_client.Histogram(
            "queue_wait_seconds",
            "Seconds that the work of a request waited for its first batch.",
            buckets=SECONDS,
            **common,
        )
        self.batch_items = prometheus_client.Histogram(
            "batch_sentences",
            "Sentences in a batch.",
            buckets=POWERS_OF_TWO,
            **common,
        )
        self.tokens = prometheus_client.Counter(
            "source_tokens", "Translated source tokens.", **common
        )
        self.waiting_tokens = prometheus_client.Gauge(
            "waiting_tokens", "Source tokens that wait.", **common
        )

    def observe_batch(self, batch: Batch) -> None:
        """Records a batch of the `Batcher`."""
        for wait in batch.waits:
            self.waits.observe(wait)
        self.batch_items.observe(batch.items)
        self.tokens.inc(batch.tokens)

    def observe_request(self, path: str, status: int, seconds: float) -> None:
        """Records the status and the time of an answered request."""
        self.requests.labels(path, str(status)).inc()
        self.seconds.labels(path).observe(seconds)

    def observe_answer(self, path: str, status: int) -> None:
        """Counts an answer if it is a refusal. An unknown `path` is "-"."""
        if status >= 400 and status != HUNG_UP:
            self.refusals.labels(path, str(status)).inc()

    def text(self) -> bytes:
        """Returns all metrics in Prometheus' text format."""
        return prometheus_client.generate_latest(self.registry)
