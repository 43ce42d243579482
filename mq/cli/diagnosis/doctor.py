"""`mq doctor`: check that everything a broker or a client needs is present and works."""

from typing import Annotated

import typer

from filer.clock import SystemClock
from filer.stores.open_store import open_store
from filer.stores.store_address import StoreAddress
from mq.cli.connect import with_client
from mq.cli.diagnosis.checks import Finding, broker_findings, machine_findings, store_findings
from mq.cli.failures import CommandFailed
from mq.cli.interrupts import INTERRUPTS
from mq.cli.options import DEFAULT_URL, Json, S3Addressing, S3Endpoint, S3Region, Timeout, UrlIfGiven
from mq.cli.output import print_json, print_table


def doctor(
    store: Annotated[
        str | None,
        typer.Option(
            "--store",
            envvar="BRAIDMQ_STORE",
            metavar="STORE",
            help="A store to check: a directory or s3://bucket/prefix.",
        ),
    ] = None,
    endpoint: S3Endpoint = None,
    region: S3Region = None,
    addressing: S3Addressing = "auto",
    url: UrlIfGiven = None,
    timeout: Timeout = None,
    as_json: Json = False,
) -> None:
    """Check this machine, and a broker, a store or both. The exit code is 0 only if nothing failed.

    Without --store and --url it checks the broker of this machine.
    """
    clock = SystemClock()
    findings = machine_findings()
    if store is not None:
        opened = open_store(StoreAddress(store, endpoint, region, addressing), clock)
        findings += INTERRUPTS.run(store_findings(opened, clock))
    if url is not None or store is None:
        findings += with_client(url or DEFAULT_URL, timeout, lambda client: broker_findings(client, clock))
    _print(findings, as_json=as_json)
    failed = sum(finding.result == "failed" for finding in findings)
    if failed:
        raise CommandFailed(f"{failed} of {len(findings)} checks failed")


def _print(findings: list[Finding], *, as_json: bool) -> None:
    if as_json:
        print_json([{"check": f.check, "result": f.result, "detail": f.detail} for f in findings])
    else:
        print_table(("check", "result", "detail"), ((f.check, f.result, f.detail) for f in findings))
