"""What brokers tell Prometheus of a topic whose segments are spread over them."""

from tests.support.cluster.http_cluster import HttpCluster


async def metric(cluster: HttpCluster, name: str, series: str) -> float:
    lines = (await cluster.up[name].client.get("/metrics")).raise_for_status().text.splitlines()
    (found,) = [line for line in lines if line.startswith(f"{series} ")]
    return float(found.rsplit(" ", 1)[1])


async def test_calls_that_forward_messages_and_the_segments_of_each_broker() -> None:
    cluster = HttpCluster()
    try:
        await cluster.start("a", "b", "c")
        await cluster.create("a", "t", segments=3)
        for name in "abc":
            assert await metric(cluster, name, 'braidmq_open_segments{topic="t"}') == 1
            assert await metric(cluster, name, "braidmq_forward_seconds_count") == 0
        await cluster.publish("a", "t", *((str(n), "value") for n in range(30)))
        # One call at least to each of the other two owners.
        assert await metric(cluster, "a", "braidmq_forward_seconds_count") >= 2
        assert await metric(cluster, "a", "braidmq_forward_seconds_sum") > 0
        assert await metric(cluster, "a", 'braidmq_publish_seconds_count{acks="stored"}') >= 1
        for name in "bc":
            assert await metric(cluster, name, "braidmq_forward_seconds_count") == 0
            assert await metric(cluster, name, 'braidmq_messages_stored_total{topic="t"}') > 0
    finally:
        await cluster.stop_all()
