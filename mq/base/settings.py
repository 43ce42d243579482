"""Every setting of a broker, with its default and its bounds."""

import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal, get_args

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field

from filer.quantities import duration_text, parse_duration_seconds, parse_size_bytes, size_text
from filer.stores.store_address import is_endpoint

METRICS_TOPICS = 500
TOKEN_SOURCES = ("token_keys", "static_tokens", "oidc_issuer")
MIB = 1024 * 1024
_HOST_PORT = re.compile(r"(?:[^\s,/:\[\]]+|\[[0-9A-Fa-f:.]+\])(?::(\d{1,5}))?")
_HOST_NAME = re.compile(r"[^\s,/:\[\]]{1,253}|\[[0-9A-Fa-f:.]+\]")
# A path may follow: a gateway may serve one broker below each path.
_BASE_URL = re.compile(rf"https?://{_HOST_PORT.pattern}(?:/[^\s?#]*)?")
# As browsers write them: lower case, no path.
_ORIGIN = re.compile(r"[a-z][a-z0-9+.-]*://(?:[a-z0-9._-]+|\[[0-9a-f:.]+\])(?::(\d{1,5}))?")
_LOOPBACK_URL = re.compile(r"http://(?:localhost|127\.0\.0\.1|\[::1\])(?:[:/]|\Z)")
_LAST_PORT = 65535


def _zookeeper_addresses(text: str) -> str:
    for address in text.split(","):
        match = _HOST_PORT.fullmatch(address)
        if match is None or not 0 < int(match[1] or 1) <= _LAST_PORT:
            raise ValueError("addresses must have the form host:port,host:port")
    return text


def _host_names(text: str) -> str:
    for name in text.split(","):
        if not _HOST_NAME.fullmatch(name.strip()):
            raise ValueError("host names or addresses without ports must have the form name,name")
    return text


def _origins(text: str) -> str:
    found = [_ORIGIN.fullmatch(each.strip()) for each in text.split(",")]
    if text != "*" and not all(match and 0 < int(match[1] or 1) <= _LAST_PORT for match in found):
        raise ValueError("origins must have the form https://host:port,https://host:port, or be * for every page")
    return text


def _base_url(text: str) -> str:
    match = _BASE_URL.fullmatch(text)
    if match is None or not 0 < int(match[1] or 1) <= _LAST_PORT:
        raise ValueError("an address must have the form http://host:port")
    return text


def _issuer(text: str) -> str:
    match = _BASE_URL.fullmatch(text)
    if match is None or not (text.startswith("https://") or re.match(_LOOPBACK_URL, text)):
        raise ValueError("an issuer must have the form https://host/path; only on this machine it may be http")
    return text


def _endpoint(text: str) -> str:
    if not is_endpoint(text):
        raise ValueError("an endpoint must have the form http://host:port or https://host")
    return text


@dataclass(frozen=True, slots=True)
class Quantity:
    """What a number in a setting counts: its place-holder in the help, and the conversions from text and back."""

    metavar: str
    parse: Callable[[str], float]
    text: Callable[[Any], str]

    def __call__(self, given: Any) -> Any:
        """Return the number for a text. Other values are left to the checks that follow."""
        return self.parse(given) if isinstance(given, str) else given


SIZE = Quantity("SIZE", parse_size_bytes, size_text)
DURATION = Quantity("DURATION", parse_duration_seconds, duration_text)
_Bytes = Annotated[int, BeforeValidator(SIZE)]
_Seconds = Annotated[float, BeforeValidator(DURATION)]


class BrokerSettings(BaseModel):
    """Settings of `mq serve`. Each is also a `BRAIDMQ_*` variable and a key of the TOML file.

    Sizes are in bytes and durations in seconds, or text with a unit: `256MB`, `10s` (`filer.quantities`).
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    data: Path = Field(
        Path("braid-data"), description="Local directory that holds everything, unless --store is given."
    )
    store: str | None = Field(None, description="Object store: s3://bucket/prefix or file:///shared/dir.")
    host: str = Field("127.0.0.1", description="Address to listen on.")
    port: Annotated[int, Field(ge=0, le=65535)] = Field(8080, description="Port to listen on; 0 takes a free one.")
    cluster: Annotated[str, Field(pattern=r"^[A-Za-z0-9._-]{1,100}$")] = Field(
        "braidmq", description="Name of the cluster."
    )
    broker: Annotated[str, Field(pattern=r"^[A-Za-z0-9_-]{1,100}$")] = Field(
        "broker", description="Name of this broker."
    )
    zookeeper: Annotated[str, AfterValidator(_zookeeper_addresses)] | None = Field(
        None, description="ZooKeeper of the cluster, host:port,host:port; without it the broker is on its own."
    )
    zookeeper_auth: Path | None = Field(
        None, description="File with name:password by which brokers prove themselves to ZooKeeper, and own their nodes."
    )
    zookeeper_open: bool = Field(
        False, description="Leave nodes in ZooKeeper open to brokers that have no --zookeeper-auth yet."
    )
    zookeeper_tls: bool = Field(False, description="Speak TLS to ZooKeeper.")
    zookeeper_ca: Path | None = Field(
        None, description="File of the CAs by which ZooKeeper's certificate is checked; else the system's."
    )
    zookeeper_cert: Path | None = Field(None, description="Certificate that this broker shows ZooKeeper, in PEM.")
    zookeeper_key: Path | None = Field(None, description="File of its key, without a passphrase.")
    session_timeout: Annotated[_Seconds, Field(ge=1, le=120)] = Field(
        10.0, description="Time after which the cluster gives up a silent broker."
    )
    refused_timeout: Annotated[_Seconds, Field(ge=0, le=120)] = Field(
        1.0,
        description="Time for which a broker refuses connections before it is failed over without waiting for its "
        "session to end; 0 always waits.",
    )
    zone: str = Field("", description="Availability zone of this broker.")
    advertise: Annotated[str, AfterValidator(_base_url)] | None = Field(
        None, description="URL at which clients and the other brokers reach this one."
    )
    peer_port: Annotated[int, Field(ge=0, le=65535)] | None = Field(
        None, description="Port to listen on for other brokers, which then call no other one; 0 takes a free one."
    )
    peer_host: str | None = Field(None, description="Address to listen on for other brokers; else that of --host.")
    peer_advertise: Annotated[str, AfterValidator(_base_url)] | None = Field(
        None, description="URL at which the other brokers reach --peer-port."
    )
    peer_port_optional: bool = Field(
        False, description="Go on with brokers that have no --peer-port yet: they call the port for clients."
    )
    tls_cert: Path | None = Field(
        None,
        description="Speak TLS only, with the certificate in this file (PEM, with its chain); read when it changes.",
    )
    tls_key: Path | None = Field(None, description="File of the certificate's key, in PEM, without a passphrase.")
    tls_client_ca: Path | None = Field(
        None, description="Demand a certificate of every client, signed by a CA in this file (mutual TLS)."
    )
    tls_ca: Path | None = Field(
        None, description="File of the CAs by which other brokers' certificates are checked; else the system's."
    )
    peer_tls_cert: Path | None = Field(
        None,
        description="Certificate for brokers at --peer-port, in PEM; with --peer-tls-key and --peer-tls-ca.",
    )
    peer_tls_key: Path | None = Field(None, description="File of its key, in PEM, without a passphrase.")
    peer_tls_ca: Path | None = Field(
        None, description="File of the CAs that sign brokers' certificates: who calls --peer-port has to show one."
    )
    peer_keys: Path | None = Field(
        None,
        description="File of the keys by which brokers prove to each other who they are; read when it changes. "
        "`mq peer-keys` makes it.",
    )
    peer_keys_optional: bool = Field(
        False, description="Go on with brokers that have no peer keys yet, by the secret in the store."
    )
    insecure: bool = Field(
        False, description="Listen beyond this machine though nobody is asked who it is, or what is sent can be read."
    )
    authorizer: Literal["user", "loopback", "any", "tokens"] = Field(
        "user",
        description="Which requests are served: those of the user of this machine who runs the broker (user), of all "
        "its users (loopback), those with a token that allows them (tokens), or all (any).",
    )
    token_keys: Path | None = Field(
        None,
        description="File of the public keys that sign tokens, for --authorizer tokens or user; `mq token` makes it.",
    )
    static_tokens: Path | None = Field(
        None, description="File of the hashes of tokens that are not signed, for --authorizer tokens or user."
    )
    oidc_issuer: Annotated[str, AfterValidator(_issuer)] | None = Field(
        None, description="OpenID issuer whose tokens are accepted, https://host/path, for --authorizer tokens or user."
    )
    oidc_audience: Annotated[str, Field(min_length=1, max_length=200)] | None = Field(
        None, description="Audience that the issuer's tokens have to name; default: the name of the cluster."
    )
    allowed_hosts: Annotated[str, AfterValidator(_host_names)] | None = Field(
        None, description="More names, name,name, by which --authorizer user or loopback lets this broker be addressed."
    )
    metrics: Literal["authorized", "any"] = Field(
        "authorized", description="Who gets /metrics: those who may observe (authorized), or everybody (any)."
    )
    tracing: Literal["off", "otlp"] = Field(
        "off", description="Send traces to a collector by OTLP, as the OTEL_* variables say; needs the extra otel."
    )
    log_level: Literal["debug", "info", "warning", "error"] = Field(
        "info", description="Lowest level that is logged to stderr."
    )
    log_format: Literal["text", "json"] = Field(
        "text", description="Lines of the log: text for people, or a JSON document each (json) for machines."
    )
    audit: Literal["off", "on"] | None = Field(
        None,
        description="Record changes and refusals in the topic __audit, before they are answered; default: on where "
        "tokens are taken.",
    )
    access_log: Literal["off", "on"] = Field(
        "off", description="Log each request when it has been answered, at the level info."
    )
    metrics_topics: Annotated[int, Field(ge=0, le=10_000_000)] = Field(
        METRICS_TOPICS, description="Topics that /metrics shows by name; it shows the others together."
    )
    cors_origin: Annotated[str, AfterValidator(_origins)] | None = Field(
        None, description="Web pages that may use this broker, https://host,https://host; * for every page."
    )
    drain_timeout: Annotated[_Seconds, Field(gt=0, le=3600)] = Field(
        30.0, description="Time to finish work after SIGTERM."
    )
    connections: Annotated[int, Field(ge=8, le=100_000_000)] = Field(
        10_000, description="Most connections at a time; fewer where the limit of open files is lower."
    )
    connections_per_address: Annotated[int, Field(ge=1, le=100_000_000)] = Field(
        5_000, description="Most connections of one address, except of this machine's own."
    )
    idle_timeout: Annotated[_Seconds, Field(gt=0, le=86400)] = Field(
        120.0, description="Time that a connection stays open without a request."
    )
    head_timeout: Annotated[_Seconds, Field(gt=0, le=3600)] = Field(
        10.0, description="Time in which the headers of a request arrive, once they have begun."
    )
    stall_timeout: Annotated[_Seconds, Field(gt=0, le=3600)] = Field(
        20.0,
        description="Time in which a body, or an answer, has to get on by as much as --slowest-bytes-per-second.",
    )
    slowest_bytes_per_second: Annotated[_Bytes, Field(ge=1, le=1024 * MIB)] = Field(
        4096, description="Slowest rate at which a client may send its body or take its answer."
    )
    max_head_bytes: Annotated[_Bytes, Field(ge=8192, le=16 * MIB)] = Field(
        96 * 1024, description="Largest request line with its headers; a marker in it may have 60 KB."
    )
    publish_timeout: Annotated[_Seconds, Field(ge=0.1, le=100)] = Field(
        20.0,
        description="Time after which a publish that waits for the store fails, and tells the cause.",
    )
    read_timeout: Annotated[_Seconds, Field(ge=0.1, le=600)] = Field(
        10.0, description="Time after which a read of the store is given up; enough to read the largest file."
    )
    front_store_bytes: Annotated[_Bytes, Field(ge=MIB)] = Field(256 * MIB, description="Memory for recent messages.")
    arriving_bytes: Annotated[_Bytes, Field(ge=MIB)] = Field(
        16 * MIB, description="Memory for bodies of which a part is there, besides the one that began first."
    )
    file_cache_bytes: Annotated[_Bytes, Field(ge=MIB)] = Field(64 * MIB, description="Memory for files read back.")
    read_bytes: Annotated[_Bytes, Field(ge=MIB)] = Field(
        64 * MIB, description="Memory for answers with messages, of all reads together, until they are sent."
    )
    segments_per_request: Annotated[int, Field(ge=1)] = Field(256, description="Most segments that one request opens.")
    max_streams: Annotated[int, Field(ge=1)] = Field(2000, description="Most subscriptions at a time.")
    streams_per_address: Annotated[int, Field(ge=1)] = Field(
        1000, description="Most subscriptions at a time from one address."
    )
    max_body_bytes: Annotated[_Bytes, Field(ge=1024, le=1024 * MIB)] = Field(
        64 * MIB, description="Largest request body."
    )
    max_json_bytes: Annotated[_Bytes, Field(ge=1024, le=64 * MIB)] = Field(
        8 * MIB, description="Largest JSON or NDJSON body: while it is read it takes some 30 times its size."
    )
    max_upload_bytes: Annotated[_Bytes, Field(ge=1, le=5 * 1024**4)] = Field(
        5 * 1024**3, description="Largest payload submitted by reference."
    )
    flush_bytes: Annotated[_Bytes, Field(ge=1024, le=512 * MIB)] = Field(
        8 * MIB, description="Size at which a file is written."
    )
    flush_interval: Annotated[_Seconds, Field(ge=0, le=10)] | None = Field(
        None, description="Time between puts of a busy segment; default 0 on a directory, 0.1s on S3."
    )
    grace: Annotated[_Seconds, Field(ge=1, le=30 * 86400)] = Field(
        3600.0, description="Time that superseded files stay for readers."
    )
    rollup_age: Annotated[_Seconds, Field(ge=0, le=30 * 86400)] = Field(
        600.0, description="Time that small files stay as they are, unless they are tiny or very many."
    )
    maintenance_interval: Annotated[_Seconds, Field(gt=0, le=3600)] = Field(
        5.0, description="Time between rounds of roll-up, retention and snapshots; idle topics have fewer."
    )
    scrub_days: Annotated[float, Field(ge=0, le=3650)] = Field(
        30.0, description="Days in which everything stored is read once and checked against its digests; 0 for never."
    )
    scrub_bytes_per_second: Annotated[_Bytes, Field(ge=65_536)] = Field(
        32 * MIB, description="Fastest rate of that reading; it is slower where that is enough for --scrub-days."
    )
    verify_bytes_per_second: Annotated[_Bytes, Field(ge=65_536)] = Field(
        64 * MIB, description="Fastest rate at which this broker reads for mq verify --url, for all that ask together."
    )
    report_interval: Annotated[_Seconds, Field(ge=0.05, le=3600)] = Field(
        1.0,
        description="Time between reports of traffic to the leader, and between its decisions to split or merge.",
    )
    segments_per_broker: Annotated[float, Field(gt=0, le=1e6)] = Field(
        8.0, description="Number of segments at their target that one broker can carry, for the metric brokers_wanted."
    )
    s3_endpoint: Annotated[str, AfterValidator(_endpoint)] | None = Field(
        None, description="Endpoint of an S3-compatible store."
    )
    s3_region: str | None = Field(None, description="Region of the bucket.")
    s3_addressing: Literal["auto", "path", "virtual"] = Field("auto", description="How buckets are addressed.")
    s3_resend_after: Annotated[_Seconds, Field(ge=0.1, le=60)] = Field(
        3.0, description="Time after which a request to S3 without an answer is sent again, on a new connection."
    )

    @property
    def is_audited(self) -> bool:
        """Whether changes and refusals are recorded."""
        return (self.audit or ("on" if self.takes_tokens else "off")) == "on"

    @property
    def trusts_this_machine(self) -> bool:
        """Whether the origin of a request decides if it needs a token."""
        return self.authorizer in ("user", "loopback")

    @property
    def has_peer_listener(self) -> bool:
        """Whether brokers have a port of their own here."""
        return self.peer_port is not None

    @property
    def serves_brokers_in_public(self) -> bool:
        """Whether brokers may call the port for clients."""
        return not self.has_peer_listener or self.peer_port_optional

    @property
    def peer_address(self) -> str:
        """The address to listen on for other brokers."""
        return self.host if self.peer_host is None else self.peer_host

    @property
    def takes_tokens(self) -> bool:
        """Whether a token gives a request its rights."""
        return self.authorizer == "tokens" or (
            self.authorizer == "user" and any(getattr(self, field) for field in TOKEN_SOURCES)
        )

    @property
    def more_hosts(self) -> list[str]:
        """Return the names in `allowed_hosts`."""
        return [name.strip() for name in (self.allowed_hosts or "").split(",") if name.strip()]

    @property
    def cors_origins(self) -> list[str]:
        """Return the origins in `cors_origin`."""
        return [name.strip() for name in (self.cors_origin or "").split(",") if name.strip()]

    @property
    def store_url(self) -> str:
        """Return the address of the store: `store`, or else the directory `data`."""
        return self.store or str(self.data)


def quantity_of(field: str) -> Quantity | None:
    """Return what the setting counts: bytes, seconds, or neither."""
    info = BrokerSettings.model_fields[field]
    nested = [each for kind in get_args(info.annotation) for each in getattr(kind, "__metadata__", ())]
    found = [each.func for each in [*info.metadata, *nested] if isinstance(each, BeforeValidator)]
    return next((each for each in found if isinstance(each, Quantity)), None)


def setting_text(field: str, value: Any) -> str:
    """Return a setting's value as a flag takes it: sizes and durations with a unit, and nothing for None or false."""
    if value is None or value is False:
        return ""
    if value is True:
        return "true"
    quantity = quantity_of(field)
    if quantity is not None:
        return quantity.text(value)
    return f"{value:g}" if isinstance(value, float) else str(value)
