"""Connects to a topic's cluster."""

from braidmq.client import Client
from braidmq.spark.options import Source
from braidmq.spark.topic_snapshot import TopicSnapshot
from braidmq.transport.retry import Retry


def open_client(source: Source, retry: Retry | None = None) -> Client:
    """Return a client of the source's cluster. The caller closes it."""
    return Client(source.url, headers=source.headers, retry=retry or Retry())


def fetch_snapshot(client: Client, source: Source) -> TopicSnapshot:
    """Return the topic as it is now. Raises `TopicNotFound`."""
    return TopicSnapshot.of(client.topic(source.topic))
