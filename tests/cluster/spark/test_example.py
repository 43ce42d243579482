"""The declarative pipeline of examples/carriers: its definitions, run as Spark would, without Spark Connect."""

import json
import runpy
from pathlib import Path

import pytest
from pyspark.pipelines.flow import AutoCdcFlow, Flow
from pyspark.pipelines.graph_element_registry import GraphElementRegistry, graph_element_registration_context
from pyspark.pipelines.output import Output, Sink
from pyspark.sql import DataFrame, SparkSession

from braidmq import Client

pytestmark = [pytest.mark.xdist_group("spark"), pytest.mark.timeout(400)]

EXAMPLE = Path(__file__).parents[3] / "examples" / "carriers" / "transformations" / "carriers.py"
FLIGHTS = [("UA", "2013-01-01T05:00:00Z"), ("DL", "2013-01-01T23:00:00Z"), ("UA", "2013-01-01T06:00:00Z")]
LATER = [("UA", "2013-01-04T05:00:00Z")]


class Definitions(GraphElementRegistry):
    """What a file of a pipeline defines."""

    def __init__(self) -> None:
        self.outputs: dict[str, Output] = {}
        self.flows: dict[str, Flow] = {}

    def register_output(self, output: Output) -> None:
        self.outputs[output.name] = output

    def register_flow(self, flow: Flow) -> None:
        self.flows[flow.name] = flow

    def register_auto_cdc_flow(self, flow: AutoCdcFlow) -> None:
        raise AssertionError("the example has none")

    def register_sql(self, sql_text: str, file_path: Path) -> None:
        raise AssertionError("the example has none")


def publish(client: Client, flights: list[tuple[str, str]]) -> None:
    client.publish_many("flights", [json.dumps({"carrier": carrier, "time_hour": time}) for carrier, time in flights])


def test_the_example_of_a_declarative_pipeline(
    braid_spark: SparkSession, client: Client, checkpoint: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for topic in ("flights", "carriers"):
        client.create_topic(topic, value_type="json")
    publish(client, FLIGHTS)
    monkeypatch.setenv("BRAIDMQ_URL", client.url)
    found = Definitions()
    with graph_element_registration_context(found):
        runpy.run_path(str(EXAMPLE))
    assert set(found.outputs) == {"flights", "per_carrier", "carriers"}

    run(found.flows["flights"].func(), "memory", {}, f"{checkpoint}-table", name="flights")
    counted = found.flows["per_carrier"].func()
    assert {(row.carrier, row.flights) for row in counted.collect()} == {("UA", 2), ("DL", 1)}

    sink, flow = found.outputs["carriers"], found.flows["per_carrier_and_day"]
    assert isinstance(sink, Sink) and flow.target == "carriers"
    # A day is over once something of two days later has come.
    publish(client, LATER)
    run(flow.func(), sink.format, dict(sink.options), f"{checkpoint}-sink", name="carriers")
    published = [(message.key, json.loads(message.value or b"")) for message in client.browse("carriers")]
    day = "2013-01-01T00:00:00.000Z"
    assert sorted((key, value["flights"], value["day"]) for key, value in published) == [
        (b"DL", 1, day),
        (b"UA", 2, day),
    ]


def run(frame: DataFrame, sink: str, options: dict[str, str], checkpoint: str, *, name: str) -> None:
    """One run of a flow."""
    writer = frame.writeStream.format(sink).options(**options).option("checkpointLocation", checkpoint).queryName(name)
    running = writer.outputMode("append").trigger(availableNow=True).start()
    try:
        assert running.awaitTermination(100)
    finally:
        running.stop()
