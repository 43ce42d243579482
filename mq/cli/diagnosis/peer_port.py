"""What `mq doctor` sees of the ports where brokers call each other. It looks as a client, not as a broker."""

import asyncio
import contextlib
import ssl
from collections.abc import Sequence
from dataclasses import dataclass
from http import HTTPStatus
from typing import Literal
from urllib.parse import urlsplit

from braidmq import Cluster
from filer.clock import Clock
from mq.base.exposure import is_this_machine

Result = Literal["ok", "warning", "failed"]
Outcome = tuple[Result, str]

CALL = "/internal/v1/presence"
"""A call of brokers to each other, which changes nothing."""
CONNECT_SECONDS = 5.0
SOON_DAYS = 14.0
"""A certificate is to be replaced so long before its end, as in the alert (`BraidMQCertificateExpires`)."""
_DAY_SECONDS = 86_400.0
_ORDER: Sequence[Result] = ("ok", "warning", "failed")
_REFUSED_BY_TLS = ("CERTIFICATE_REQUIRED", "HANDSHAKE_FAILURE", "BAD_CERTIFICATE")


@dataclass(frozen=True, slots=True)
class PeerPort:
    """A client's view of the port, without a certificate or a key of brokers.

    `unreachable` is the reason why there was no connection, if there was none. `status` is that of the answer to a call
    of brokers; None if the connection was closed without an answer, as mutual TLS does it. `left_seconds` is how long
    the certificate of the port still counts, if it has shown one.
    """

    has_tls: bool
    unreachable: str = ""
    status: int | None = None
    left_seconds: float | None = None


async def look_at(url: str, clock: Clock) -> PeerPort:
    """Connect to a broker's port for brokers, show no certificate, and call it as a broker would, without any proof."""
    address = urlsplit(url)
    has_tls = address.scheme == "https"
    host, port = address.hostname or "", address.port or (443 if has_tls else 80)
    try:
        async with asyncio.timeout(CONNECT_SECONDS):
            reader, writer = await asyncio.open_connection(host, port, ssl=_trusting_all() if has_tls else None)
    except ssl.SSLError as error:
        if error.reason is not None and any(each in error.reason for each in _REFUSED_BY_TLS):
            return PeerPort(has_tls)
        return PeerPort(has_tls, unreachable=f"TLS: {error.reason or error}")
    except (OSError, TimeoutError) as error:
        return PeerPort(has_tls, unreachable=getattr(error, "strerror", None) or "no answer")
    left_seconds = _left_seconds(writer.get_extra_info("ssl_object"), clock) if has_tls else None
    with contextlib.closing(writer):
        return PeerPort(has_tls, "", await _status(reader, writer, host), left_seconds)


async def _status(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, host: str) -> int | None:
    """The status of the answer; None if there is none."""
    try:
        async with asyncio.timeout(CONNECT_SECONDS):
            writer.write(f"GET {CALL} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n".encode())
            await writer.drain()
            words = (await reader.readline()).split()
    except (OSError, TimeoutError, ValueError):  # also for a refusal of TLS after its handshake
        return None
    return int(words[1]) if len(words) > 1 and words[1].isdigit() else None


def _trusting_all() -> ssl.SSLContext:
    """A context that trusts any certificate: nothing secret is sent, so the server's identity does not matter."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    return context


def _left_seconds(shown: ssl.SSLObject | None, clock: Clock) -> float | None:
    from cryptography.x509 import load_der_x509_certificate  # it takes a while, and a broker with TLS

    der = None if shown is None else shown.getpeercert(binary_form=True)
    if der is None:
        return None
    return load_der_x509_certificate(der).not_valid_after_utc.timestamp() - clock.now_us() / 1e6


def outcome_of(name: str, url: str, seen: PeerPort, *, proves_by_keys: bool) -> Outcome:
    """The outcome for a broker's port for brokers. Pure."""
    where = f"{name} is called at {url}, which"
    if seen.unreachable:
        return "ok", (
            f"{where} is not reached from here ({seen.unreachable}), as it should be where brokers alone are let in: "
            "mq doctor on a machine of brokers sees more"
        )
    parts = [_let_in(seen, proves_by_keys=proves_by_keys), _encryption(url, seen), *_expiry(seen)]
    worst = max((result for result, _ in parts), key=_ORDER.index)
    return worst, f"{where} {', '.join(said for _, said in parts if said)}"


def _let_in(seen: PeerPort, *, proves_by_keys: bool) -> Outcome:
    if seen.status is None:
        return "ok", "closes the connection of who is no broker"
    if seen.status < HTTPStatus.BAD_REQUEST:
        return "failed", f"answers a call of brokers {seen.status} to anybody: is that a broker?"
    if proves_by_keys:
        return "ok", f"refuses who has no key ({seen.status})"
    return "warning", (
        f"refuses who does not know the cluster's secret ({seen.status}), and asks for no certificate: give brokers "
        "--peer-tls-ca, or --peer-keys"
    )


def _encryption(url: str, seen: PeerPort) -> Outcome:
    if seen.has_tls:
        return "ok", ""
    if is_this_machine(urlsplit(url).hostname or ""):
        return "ok", "has no TLS, on this machine alone"
    return "warning", "has no TLS: who is on the way reads what brokers say to each other"


def _expiry(seen: PeerPort) -> list[Outcome]:
    if seen.left_seconds is None:
        return []
    days = seen.left_seconds / _DAY_SECONDS
    if days <= 0:
        return [("failed", f"shows a certificate that has ended {-days:.1f} days ago: nobody connects any more")]
    return [("ok" if days > SOON_DAYS else "warning", f"shows a certificate that ends in {days:.1f} days")]


def of_ports(cluster: Cluster) -> Outcome:
    """The brokers that have a port for brokers, as the asked one reports. Pure."""
    if cluster.peer_keys is None:
        return "ok", "not told: brokers tell it to whoever may observe the cluster, those of earlier versions to nobody"
    have = [each.broker for each in cluster.brokers if each.peer_url]
    lack = [each.broker for each in cluster.brokers if not each.peer_url]
    if not have:
        return "ok", "none: brokers call each other at the port for clients"
    if lack:
        return "warning", f"{', '.join(lack)} have none, the others do: restart them with --peer-port"
    return "ok", "each broker has one" if len(have) > 1 else "the broker has one"


def of_keys(cluster: Cluster) -> Outcome | None:
    """Whether brokers prove their identity by keys, as the asked one reports; None if it does not report it. Pure."""
    match cluster.peer_keys:
        case None:
            return None
        case "required":
            return "ok", "brokers prove by keys who they are"
        case "optional":
            return "warning", (
                "brokers without keys are believed as well: once all have keys, restart them without "
                "--peer-keys-optional"
            )
        case _ if len(cluster.brokers) == 1:
            return "ok", "none: there is no other broker"
        case _:
            return "warning", (
                "none: whoever may read cluster/cluster.json on the store can speak as a broker: give brokers "
                "--peer-keys"
            )


def of_call(url: str, status: int) -> Outcome:
    """The outcome for a call of brokers that a client made at the port for clients. Pure."""
    if status < HTTPStatus.BAD_REQUEST:
        return "failed", f"{url}{CALL} is answered {status} to who is no broker: is that a broker?"
    return "ok", f"{url} refuses those of who is no broker ({status})"
