"""Connects to a topic's cluster."""

from braidmq.client import Client
from braidmq.spark.errors import InvalidOption
from braidmq.spark.options import Source
from braidmq.spark.topic_snapshot import TopicSnapshot
from braidmq.transport.retry import Retry


def open_client(source: Source, retry: Retry | None = None) -> Client:
    """Return a client of the source's cluster. The caller closes it."""
    given = source.credentials
    certificate = given.get("clientCert")
    return Client(
        source.url,
        token=given.get("token"),
        token_file=given.get("tokenFile"),
        headers=source.headers,
        ca=given.get("ca"),
        client_cert=None if certificate is None else (certificate, given.get("clientKey", certificate)),
        retry=retry or Retry(),
    )


def fetch_snapshot(client: Client, source: Source) -> TopicSnapshot:
    """Return the topic as it is now. Raises `TopicNotFound`, and `InvalidOption` for a topic of a topic group.

    The files have the messages of all topics of the group. Spark can filter out those of other topics as well as this.
    """
    topic = client.topic(source.topic)
    if topic.group not in (None, topic.topic):
        raise InvalidOption(
            f"the messages of topic {topic.topic!r} lie among those of topic group {topic.group!r}: read that, and "
            f"take the rows where _topic = '{topic.topic}'"
        )
    return TopicSnapshot.of(topic)
