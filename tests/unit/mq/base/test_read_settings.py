from pathlib import Path

import pytest

from filer.errors import InvalidConfig
from mq.base.read_settings import Origin, flag_of, read_settings, resolve_settings, variable_of
from mq.base.settings import DURATION, SIZE, BrokerSettings, quantity_of, setting_text


def test_without_anything_it_is_the_defaults() -> None:
    assert read_settings({}, {}, {}) == BrokerSettings()


def test_each_layer_goes_before_the_next() -> None:
    file = {"port": 1001, "host": "10.0.0.1", "zone": "file"}
    environment = {"BRAIDMQ_PORT": "1002", "BRAIDMQ_HOST": "10.0.0.2", "PATH": "/bin"}
    settings = read_settings({"port": "1003"}, environment, file)
    assert (settings.port, settings.host, settings.zone) == (1003, "10.0.0.2", "file")


@pytest.mark.parametrize("field", BrokerSettings.model_fields)
def test_every_setting_can_be_given_in_every_layer(field: str) -> None:
    given = {
        "data": "d", "store": "s3://b", "host": "::1", "port": "1", "cluster": "c", "broker": "b", "zone": "z",
        "advertise": "http://a", "authorizer": "any", "drain_timeout": "1.5", "flush_interval": "0.5", "grace": "2",
        "rollup_age": "2", "zookeeper": "z:2181", "session_timeout": "2", "metrics": "any",
        "cors_origin": "http://p", "refused_timeout": "2",
        "token_keys": "k.json", "static_tokens": "t.toml", "oidc_issuer": "https://i", "oidc_audience": "a",
        "idle_timeout": "2", "head_timeout": "2", "stall_timeout": "2", "publish_timeout": "2", "read_timeout": "2",
        "report_interval": "2", "segments_per_broker": "2", "scrub_days": "2", "s3_resend_after": "2",
        "maintenance_interval": "2", "s3_endpoint": "http://e", "s3_region": "r", "s3_addressing": "path",
        "tracing": "otlp",
        "log_level": "debug",
        "log_format": "json",
        "access_log": "on",
        "audit": "on",
        "insecure": "True",
        "peer_port": "1", "peer_advertise": "https://a", "peer_port_optional": "True",
        "peer_keys_optional": "True", "zookeeper_open": "True", "zookeeper_tls": "True",
    }.get(field, "10000000")  # fmt: skip
    clustered, tls, asking = (
        {"zookeeper": "z", "store": "s"},
        {"tls_cert": "c", "tls_key": "k"},
        {"authorizer": "tokens"},
    )
    brokers = {**clustered, "peer_port": "1"}
    private = {**brokers, "peer_tls_cert": "c", "peer_tls_key": "k", "peer_tls_ca": "a"}
    needed: dict[str, dict[str, str]] = {
        "peer_port": clustered,
        "peer_host": {**brokers, "insecure": "true"},
        "peer_advertise": brokers,
        "peer_port_optional": brokers,
        "peer_tls_cert": private,
        "peer_tls_key": private,
        "peer_tls_ca": private,
        "token_keys": asking,
        "static_tokens": asking,
        "oidc_issuer": asking,
        "oidc_audience": {**asking, "oidc_issuer": "https://i"},
        "session_timeout": clustered,
        "refused_timeout": clustered,
        "zookeeper": {"store": "s"},
        "tls_cert": tls,
        "tls_key": tls,
        "tls_client_ca": tls,
        "tls_ca": clustered,
        "peer_keys": clustered,
        "zookeeper_auth": clustered,
        "zookeeper_open": {**clustered, "zookeeper_auth": "a"},
        "zookeeper_tls": clustered,
        "zookeeper_ca": {**clustered, "zookeeper_tls": "True"},
        "zookeeper_cert": {**clustered, "zookeeper_tls": "True", "zookeeper_key": "k"},
        "zookeeper_key": {**clustered, "zookeeper_tls": "True", "zookeeper_cert": "c"},
        "peer_keys_optional": {**clustered, "peer_keys": "k"},
    }
    others = {name: value for name, value in needed.get(field, {}).items() if name != field}
    by_flag = read_settings({**others, field: given}, {}, {})
    assert str(getattr(by_flag, field)) == given.removesuffix(".0") or float(getattr(by_flag, field)) == float(given)
    assert read_settings(others, {variable_of(field): given}, {}) == by_flag
    assert read_settings(others, {}, {field: given}) == by_flag


@pytest.mark.parametrize("addresses", ["zookeeper", "a:1,b.c-d:65535", "10.0.0.1:2181", "[::1]:2181"])
def test_the_addresses_of_a_zookeeper(addresses: str) -> None:
    assert read_settings({"zookeeper": addresses, "data": "d"}, {}, {}).zookeeper == addresses


@pytest.mark.parametrize(
    "address", ["http://host", "https://h:443", "http://10.0.0.1:8080/", "http://[::1]:8080", "https://gate/broker-1"]
)
def test_the_address_that_is_advertised(address: str) -> None:
    assert read_settings({"advertise": address}, {}, {}).advertise == address


def test_an_empty_variable_counts_as_not_set() -> None:
    assert read_settings({}, {"BRAIDMQ_PORT": "", "BRAIDMQ_STORE": ""}, {}) == BrokerSettings()


@pytest.mark.parametrize(
    ("environment", "file"),
    [({"BRAIDMQ_STORE": "s3://b"}, {}), ({}, {"store": "s3://b"}), ({"BRAIDMQ_DATA": "y"}, {"store": "s3://b"})],
)
def test_a_directory_of_a_higher_layer_goes_before_a_store_of_a_lower_one(
    environment: dict[str, str], file: dict[str, str]
) -> None:
    assert read_settings({"data": "x"}, environment, file).store_url == "x"


def test_a_store_goes_before_a_directory_of_the_same_layer() -> None:
    assert read_settings({"data": "x", "store": "s3://b"}, {}, {}).store_url == "s3://b"


def test_the_directory_is_a_path() -> None:
    assert read_settings({}, {"BRAIDMQ_DATA": "x/y"}, {}).data == Path("x/y")


@pytest.mark.parametrize(
    ("flags", "environment", "file", "message"),
    [
        ({"zookeeper": "z:x"}, {}, {}, "--zookeeper: addresses must have the form host:port,host:port, not 'z:x'"),
        ({"zookeeper": "z:2181,"}, {}, {}, "--zookeeper: addresses must have"),
        ({"zookeeper": "z:70000"}, {}, {}, "--zookeeper: addresses must have"),
        ({"zookeeper": "z:2181/chroot"}, {}, {}, "--zookeeper: addresses must have"),
        ({"zookeeper": "z:0"}, {}, {}, "--zookeeper: addresses must have"),
        ({"zookeeper": "z"}, {}, {}, "--zookeeper: the brokers of a cluster share a store: name it by --store"),
        ({"session_timeout": "5"}, {}, {}, "--session-timeout: without --zookeeper a broker is on its own"),
        ({}, {"BRAIDMQ_SESSION_TIMEOUT": "5"}, {}, "BRAIDMQ_SESSION_TIMEOUT: without --zookeeper"),
        ({"refused_timeout": "0"}, {}, {}, "--refused-timeout: without --zookeeper a broker is on its own"),
        ({"advertise": "host:80"}, {}, {}, "--advertise: an address must have the form http://host:port, not"),
        ({"advertise": "http://"}, {}, {}, "--advertise: an address must have"),
        ({"advertise": "http://h:70000"}, {}, {}, "--advertise: an address must have"),
        ({"advertise": "http://h/?a=b"}, {}, {}, "--advertise: an address must have"),
        (
            {"s3_endpoint": "localhost:9000"},
            {},
            {},
            "--s3-endpoint: an endpoint must have the form http://host:port or",
        ),
        ({"session_timeout": "0.5"}, {}, {}, "--session-timeout: it must be at least 1"),
        ({"port": "70000"}, {}, {}, "--port: it must be at most 65535, not '70000'"),
        ({}, {"BRAIDMQ_PORT": "tcp://x"}, {}, "BRAIDMQ_PORT: it must be a whole number"),
        ({}, {}, {"grace": "x\ny"}, "grace in b.toml: a duration must be a number of seconds"),
        ({"authorizer": "tokens"}, {}, {}, "--authorizer: without keys no token can be checked; give --token-keys"),
        (
            {"token_keys": "k", "authorizer": "loopback"},
            {},
            {},
            "--token-keys: it needs --authorizer tokens or user; else no token counts",
        ),
        ({"oidc_audience": "a"}, {}, {}, "--oidc-audience: it is that of --oidc-issuer, which is not given"),
        ({"oidc_issuer": "http://i"}, {}, {}, "--oidc-issuer: an issuer must have the form https://host/path; only on"),
        (
            {},
            {},
            {"authorizer": "anyone"},
            "authorizer in b.toml: it must be 'user', 'loopback', 'any' or 'tokens', not 'anyone'",
        ),
        ({"cors_origin": "app.example"}, {}, {}, "--cors-origin: origins must have the form https://host:port"),
        ({"cors_origin": "https://a/path"}, {}, {}, "--cors-origin: origins must have the form"),
        ({"cors_origin": "https://a:99999"}, {}, {}, "--cors-origin: origins must have the form"),
        ({"cors_origin": "https://a,*"}, {}, {}, "--cors-origin: origins must have the form"),
        ({}, {}, {"cors_origin": "*"}, "cors_origin in b.toml: every page that somebody here opens could"),
        ({"drain_timeout": "0"}, {}, {}, "--drain-timeout: it must be more than 0"),
        ({"tls_cert": "c"}, {}, {}, "--tls-cert: a certificate is of no use without its key: give --tls-key too"),
        ({}, {"BRAIDMQ_TLS_KEY": "k"}, {}, "BRAIDMQ_TLS_KEY: a key is of no use without its certificate"),
        ({}, {}, {"tls_client_ca": "a"}, "tls_client_ca in b.toml: only TLS has certificates of clients: give --tls-c"),
        ({"peer_keys": "k"}, {}, {}, "--peer-keys: without --zookeeper a broker is on its own and calls no others"),
        (
            {"peer_keys_optional": True, "zookeeper": "z", "store": "s"},
            {},
            {},
            "--peer-keys-optional: there are no peer keys: give --peer-keys too",
        ),
        (
            {"peer_keys": "k", "zookeeper": "z", "store": "s"},
            {"BRAIDMQ_PEER_KEYS_TEXT": "k s"},
            {},
            "--peer-keys: BRAIDMQ_PEER_KEYS_TEXT has peer keys too: give the file or the variable",
        ),
        ({"zookeeper_auth": "a"}, {}, {}, "--zookeeper-auth: without --zookeeper there is nobody to prove it to"),
        (
            {"zookeeper_auth": "a", "zookeeper": "z", "store": "s"},
            {"BRAIDMQ_ZOOKEEPER_AUTH_TEXT": "n:p"},
            {},
            "--zookeeper-auth: BRAIDMQ_ZOOKEEPER_AUTH_TEXT has credentials too",
        ),
        (
            {"zookeeper_open": True, "zookeeper": "z", "store": "s"},
            {},
            {},
            "--zookeeper-open: nodes are open without --zookeeper-auth",
        ),
        ({"zookeeper_tls": True}, {}, {}, "--zookeeper-tls: without --zookeeper there is nobody to speak to"),
        ({}, {}, {"zookeeper_ca": "c"}, "zookeeper_ca in b.toml: it needs --zookeeper-tls; else nothing is encrypted"),
        ({"tls_ca": "a"}, {}, {}, "--tls-ca: without --zookeeper a broker is on its own and calls no others"),
        (
            {"tls_cert": "c", "tls_key": "k", "advertise": "http://h:1"},
            {},
            {},
            "--advertise: with --tls-cert this broker speaks TLS only: give an address that begins with https://, not",
        ),
        (
            {"host": "0.0.0.0"},
            {"BRAIDMQ_AUTHORIZER": "any"},
            {},
            "--host: at '0.0.0.0' with --authorizer any everybody who can connect may do everything; give --insecure",
        ),
        (
            {"authorizer": "any", "tls_cert": "c", "tls_key": "k"},
            {"BRAIDMQ_HOST": "::"},
            {},
            "BRAIDMQ_HOST: at '::' with --authorizer any everybody who can connect may do everything; give --insecure",
        ),
        (
            {"host": "10.0.0.1", "static_tokens": "k"},
            {},
            {},
            "--host: at '10.0.0.1' with --authorizer user everybody on the way can read what is sent, and use it",
        ),
        (
            {"host": "10.0.0.1", "authorizer": "tokens", "token_keys": "k"},
            {},
            {},
            "--host: at '10.0.0.1' with --authorizer tokens everybody on the way can read what is sent, and use it",
        ),
        (
            {"peer_port": "1"},
            {},
            {},
            "--peer-port: without --zookeeper a broker is on its own and no others call it",
        ),
        (
            {"zookeeper": "z", "store": "s"},
            {"BRAIDMQ_PEER_HOST": "10.0.0.1"},
            {},
            "BRAIDMQ_PEER_HOST: it is about the listener for brokers: give --peer-port too",
        ),
        (
            {"zookeeper": "z", "store": "s", "port": "9", "peer_host": "0.0.0.0"},
            {},
            {"peer_port": 9},
            "peer_port in b.toml: clients have the port 9 already (--port): give brokers another one",
        ),
        (
            {"zookeeper": "z", "store": "s", "peer_port": "9", "peer_tls_key": "k"},
            {},
            {},
            "--peer-tls-key: brokers show each other certificates of a CA: give --peer-tls-cert and --peer-tls-ca too",
        ),
        (
            {"zookeeper": "z", "store": "s", "peer_port": "9", "peer_host": "10.0.0.1"},
            {},
            {},
            "--peer-host: at '10.0.0.1' everybody on the way can read what brokers say to each other; speak TLS by ",
        ),
        (
            {"zookeeper": "z", "store": "s", "peer_port": "9", "tls_cert": "c", "tls_key": "k"},
            {"BRAIDMQ_PEER_ADVERTISE": "http://b:9"},
            {},
            "BRAIDMQ_PEER_ADVERTISE: the listener for brokers speaks TLS only: give an address that begins with https:",
        ),
        ({}, {"BRAIDMQ_INSECURE": "x"}, {}, "BRAIDMQ_INSECURE: it must be true or false, not 'x'"),
        ({}, {"BRAIDMQ_PROT": "1"}, {}, "unknown environment variable 'BRAIDMQ_PROT': did you mean 'BRAIDMQ_PORT'?"),
        ({}, {}, {"drain-timeout": 1}, "b.toml: unknown setting 'drain-timeout': did you mean 'drain_timeout'?"),
        ({}, {}, {"serve": {"port": 1}}, "b.toml: unknown setting 'serve'"),
    ],
)
def test_what_is_wrong_is_said_in_one_line(
    flags: dict[str, str], environment: dict[str, str], file: dict[str, object], message: str
) -> None:
    with pytest.raises(InvalidConfig) as caught:
        read_settings(flags, environment, file, file_name="b.toml")
    assert str(caught.value).startswith(message)
    assert "\n" not in str(caught.value)


def test_a_long_wrong_value_is_cut() -> None:
    with pytest.raises(InvalidConfig) as caught:
        read_settings({"port": "9" * 5000}, {}, {})
    assert len(str(caught.value)) < 300


@pytest.mark.parametrize(
    ("flags", "environment"),
    [
        ({"host": "0.0.0.0"}, {}),
        ({"authorizer": "any"}, {}),
        ({"host": "0.0.0.0", "authorizer": "any", "insecure": True}, {}),
        ({"host": "0.0.0.0", "authorizer": "any"}, {"BRAIDMQ_INSECURE": "true"}),
        ({"host": "0.0.0.0", "authorizer": "tokens", "token_keys": "k", "tls_cert": "c", "tls_key": "k"}, {}),
        ({"host": "0.0.0.0", "authorizer": "any", "tls_cert": "c", "tls_key": "k", "tls_client_ca": "a"}, {}),
    ],
    ids=[
        "serves this machine only",
        "listens to it only",
        "a flag",
        "a variable",
        "tokens that nobody reads",
        "knows its clients",
    ],
)
def test_a_broker_may_be_open_to_a_network_if_that_is_meant(
    flags: dict[str, str | bool], environment: dict[str, str]
) -> None:
    assert read_settings(flags, environment, {})


def test_variables_of_other_commands_are_let_pass() -> None:
    of_clients = {"BRAIDMQ_CA": "x", "BRAIDMQ_CLIENT_CERT": "x", "BRAIDMQ_CLIENT_KEY": "x"}
    environment = {"BRAIDMQ_URL": "http://x", "BRAIDMQ_CONFIG": "x", **of_clients}
    assert read_settings({}, environment, {}) == BrokerSettings()


def test_names() -> None:
    assert (flag_of("drain_timeout"), variable_of("drain_timeout")) == ("--drain-timeout", "BRAIDMQ_DRAIN_TIMEOUT")


NOT_SECONDS = {"scrub_days", "segments_per_broker"}
NUMBERS = [name for name, info in BrokerSettings.model_fields.items() if isinstance(info.default, int | float)]


@pytest.mark.parametrize("field", [name for name in NUMBERS if "bytes" in name])
def test_every_number_of_bytes_takes_a_unit_in_every_layer(field: str) -> None:
    assert quantity_of(field) is SIZE
    plain = read_settings({field: "2097152"}, {}, {})
    assert read_settings({field: "2MiB"}, {}, {}) == plain
    assert read_settings({}, {variable_of(field): "2MiB"}, {}) == plain
    assert read_settings({}, {}, {field: "2MiB"}) == plain == read_settings({}, {}, {field: 2_097_152})


FRACTIONS = [name for name in NUMBERS if isinstance(BrokerSettings.model_fields[name].default, float)]


@pytest.mark.parametrize("field", ["flush_interval", *(name for name in FRACTIONS if name not in NOT_SECONDS)])
def test_every_number_of_seconds_takes_a_unit_in_every_layer(field: str) -> None:
    assert quantity_of(field) is DURATION
    others = {"zookeeper": "z", "store": "s"} if field in ("session_timeout", "refused_timeout") else {}
    plain = read_settings({**others, field: "2"}, {}, {})
    assert read_settings({**others, field: "2000ms"}, {}, {}) == plain
    assert read_settings(others, {variable_of(field): "2s"}, {}) == plain
    assert read_settings(others, {}, {field: "2s"}) == plain


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"front_store_bytes": "256M"}, "--front-store-bytes: a size must be .* as in 256MB, not '256M'"),
        ({"grace": "1 hour"}, "--grace: a duration must be .* as in 10s or 1h30m, not '1 hour'"),
    ],
)
def test_bad_quantities_are_told_with_what_would_be_right(given: dict[str, str], message: str) -> None:
    with pytest.raises(InvalidConfig, match=message):
        read_settings(given, {}, {})


@pytest.mark.parametrize("field", BrokerSettings.model_fields)
def test_a_value_is_written_as_a_flag_takes_it(field: str) -> None:
    default = BrokerSettings.model_fields[field].default
    text = setting_text(field, default)
    if text and field not in ("session_timeout", "refused_timeout"):
        assert getattr(read_settings({field: text}, {}, {}), field) == default


def test_each_value_tells_its_origin() -> None:
    file = {"port": 1001, "host": "10.0.0.1", "zone": "file", "store": "s3://b"}
    environment = {"BRAIDMQ_PORT": "1002", "BRAIDMQ_HOST": "10.0.0.2"}
    found = resolve_settings({"port": "1003", "data": "d"}, environment, file, file_name="b.toml")
    assert found.origins == {
        "port": Origin("command line", "--port"),
        "host": Origin("environment", "BRAIDMQ_HOST"),
        "zone": Origin("file", "zone in b.toml"),
        # What names the store in a higher layer has taken `store` out of force.
        "data": Origin("command line", "--data"),
    }
    assert found.settings.store is None


@pytest.mark.parametrize(
    ("settings", "is_audited"),
    [
        ({}, False),
        ({"authorizer": "any"}, False),
        ({"static_tokens": "tokens.toml"}, True),
        ({"authorizer": "tokens", "token_keys": "keys.json"}, True),
        ({"static_tokens": "tokens.toml", "audit": "off"}, False),
        ({"audit": "on"}, True),
    ],
)
def test_the_trail_is_kept_where_tokens_are_taken(settings: dict[str, str], is_audited: bool) -> None:
    assert read_settings(settings, {}, {}).is_audited is is_audited
