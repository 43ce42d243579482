"""The secrets of a local cluster: made once, used again, renewed in time, and for nobody else's eyes."""

import os
import ssl
import stat
from collections.abc import Callable
from pathlib import Path

import pytest

from filer.clock import ManualClock, SystemClock
from filer.errors import InvalidInput
from mq.cli.tokens.signing import rotate_key
from mq.local.secure.authority import parse_identity
from mq.local.secure.secure_folder import SecureFolder
from mq.peer_keys.peer_keys import parse_peer_keys
from mq.security.key_ring import KeyRing, parse_key_set
from mq.security.signed_tokens import OWN_ISSUER, Audience, verify
from mq.tls.contexts import TlsFiles, read_contexts

NOW_US = 1_795_770_000_000_000  # 2026-11-27
ALL = [
    "ca.key",
    "broker.pem",
    "zookeeper.pem",
    "signing-keys.json",
    "admin.token",
    "peer-keys",
    "zookeeper-auth",
]


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock(start_us=NOW_US)


@pytest.fixture
def secure(tmp_path: Path, clock: ManualClock) -> SecureFolder:
    return SecureFolder(tmp_path / "secure", "local", clock)


def texts(secure: SecureFolder) -> dict[str, str]:
    return {path.name: path.read_text() for path in secure.folder.iterdir()}


def test_it_is_made_once_and_used_again(secure: SecureFolder) -> None:
    assert sorted(secure.prepare()) == sorted(ALL)
    before = texts(secure)
    assert secure.prepare() == [] and secure.renew() == [] and texts(secure) == before
    assert parse_peer_keys(secure.peer_keys.read_bytes()).ids
    assert before["zookeeper-auth"].startswith("braidmq:") and len(before["zookeeper-auth"]) > 40
    assert before[".gitignore"] == "*\n"


def test_nobody_else_reads_it(secure: SecureFolder) -> None:
    secure.prepare()
    assert stat.S_IMODE(secure.folder.stat().st_mode) == 0o700
    assert {stat.S_IMODE(path.stat().st_mode) for path in secure.folder.iterdir()} == {0o600}


def test_brokers_take_the_token_and_what_it_may_do(secure: SecureFolder) -> None:
    secure.prepare()
    keys = parse_key_set(secure.public_keys.read_bytes(), OWN_ISSUER, strict=True)
    assert '"d"' not in secure.public_keys.read_text()
    token = secure.token.read_text().strip()
    principal = verify(token, KeyRing(keys), Audience("local", {}), NOW_US / 1e6)
    assert principal.name == "admin"
    assert [str(grant) for grant in principal.grants.all] == ["topic:*:*", "topic:__audit:read", "cluster:*"]
    assert secure.header.read_text() == f"Authorization: Bearer {token}\n"


def test_brokers_take_the_certificate(tmp_path: Path) -> None:
    secure = SecureFolder(tmp_path / "secure", "local", SystemClock())
    secure.prepare()
    found = read_contexts(TlsFiles(secure.broker, secure.broker, secure.ca, secure.ca, own_host="127.0.0.1"))
    assert found.server is not None and found.peers is not None and found.expires
    assert ssl.create_default_context(cafile=secure.ca).cert_store_stats()["x509_ca"] == 1


@pytest.mark.parametrize("again", [SecureFolder.prepare, SecureFolder.renew])
async def test_what_ends_soon_is_renewed_and_the_ca_stays(
    again: Callable[[SecureFolder], list[str]], secure: SecureFolder, clock: ManualClock
) -> None:
    secure.prepare()
    before = texts(secure)
    await clock.leap(59 * 86_400)
    assert again(secure) == []
    await clock.leap(86_400)
    assert again(secure) == ["broker.pem", "zookeeper.pem", "admin.token"]
    after = texts(secure)
    changed = {name for name, text in after.items() if before[name] != text}
    assert changed == {"broker.pem", "zookeeper.pem", "admin.token", "admin.header"}


async def test_a_ca_that_ends_within_a_year_is_replaced_at_a_start_with_all_that_it_has_signed(
    secure: SecureFolder, clock: ManualClock
) -> None:
    secure.prepare()
    await clock.leap(3300 * 86_400)
    assert "ca.key" not in secure.renew()
    told: list[str] = []
    made = SecureFolder(secure.folder, "local", clock, told.append).prepare()
    assert made == ["ca.key", "broker.pem", "zookeeper.pem"]
    assert told == [
        f"{secure.folder / 'ca.key'} ends at 2036-11-24T09:00:00Z, and a new CA takes its place: "
        f"whoever trusts the one before needs {secure.ca} again"
    ]
    assert secure.ca.read_text() in (secure.folder / "ca.key").read_text()


@pytest.mark.parametrize("again", [SecureFolder.prepare, SecureFolder.renew])
def test_a_ca_from_the_future_is_kept_and_told(
    again: Callable[[SecureFolder], list[str]], secure: SecureFolder
) -> None:
    secure.prepare()
    within_an_hour = SecureFolder(secure.folder, "local", ManualClock(start_us=NOW_US - 3_600_000_000))
    # Brokers would refuse a token from the future, too.
    assert again(within_an_hour) == ["admin.token"]
    before = texts(secure)
    earlier = SecureFolder(secure.folder, "local", ManualClock(start_us=NOW_US - 3_601_000_000))
    with pytest.raises(InvalidInput, match=r"^\S+/ca.key is from the future: it begins at .*; set the clock right, or"):
        again(earlier)
    assert texts(secure) == before


@pytest.mark.parametrize("name", ["ca.key", "public-keys.json", "signing-keys.json", ".gitignore"])
@pytest.mark.parametrize("end", ["1", "01M8E2A694N53MNKCBZ4DGTRH2"])
def test_what_a_start_that_was_killed_has_left_is_deleted(name: str, end: str, secure: SecureFolder) -> None:
    secure.prepare()
    before = texts(secure)
    (secure.folder / f".{name}.{end}").write_text("half a")
    (secure.folder / f".{name}.{end}").chmod(0o600)
    (secure.folder / ".ca.key.mine").write_text("not of a writer")
    assert secure.prepare() == []
    assert texts(secure) == {**before, ".ca.key.mine": "not of a writer"}


@pytest.mark.parametrize(
    ("name", "made"),
    [
        ("ca.key", ["ca.key", "broker.pem", "zookeeper.pem"]),
        ("ca.pem", []),
        ("broker.pem", ["broker.pem"]),
        ("signing-keys.json", ["signing-keys.json", "admin.token"]),
        ("public-keys.json", []),
        ("admin.token", ["admin.token"]),
        ("admin.header", []),
        ("peer-keys", ["peer-keys"]),
    ],
)
def test_what_is_gone_is_made_anew_with_what_rests_on_it(name: str, made: list[str], secure: SecureFolder) -> None:
    secure.prepare()
    (secure.folder / name).unlink()
    assert secure.prepare() == made
    assert secure.prepare() == [] and (secure.folder / name).exists()


@pytest.mark.parametrize("after", range(1, 11))
def test_stopped_after_any_file_the_next_start_finishes(
    after: int, secure: SecureFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Stopped(BaseException):
        pass

    written = 0
    write = SecureFolder._write

    def stops(self: SecureFolder, path: Path, text: str) -> None:
        nonlocal written
        if written == after:
            raise Stopped
        written += 1
        write(self, path, text)

    monkeypatch.setattr(SecureFolder, "_write", stops)
    with pytest.raises(Stopped):
        secure.prepare()
    monkeypatch.undo()
    secure.prepare()
    test_brokers_take_the_token_and_what_it_may_do(secure)
    authority = parse_identity((secure.folder / "ca.key").read_bytes())
    assert secure.ca.read_text() == authority.certificate_pem() and secure.prepare() == []


def test_keys_that_were_rotated_away_take_the_token_along(secure: SecureFolder) -> None:
    secure.prepare()
    rotate_key(secure.signing_keys, secure.public_keys, keep=1)
    assert secure.prepare() == []
    rotate_key(secure.signing_keys, secure.public_keys, keep=0)
    assert secure.prepare() == ["admin.token"]


@pytest.mark.parametrize("name", ["broker.pem", "admin.token"])
def test_what_nobody_relies_on_is_made_anew_where_it_is_damaged(name: str, secure: SecureFolder) -> None:
    secure.prepare()
    (secure.folder / name).write_text("damaged")
    assert secure.prepare() == [name]


@pytest.mark.parametrize("name", ["ca.key", "peer-keys", "zookeeper-auth", "signing-keys.json"])
def test_what_others_rely_on_is_told_where_it_is_damaged(name: str, secure: SecureFolder) -> None:
    secure.prepare()
    (secure.folder / name).write_text("damaged")
    with pytest.raises(InvalidInput, match=rf"{name}.* delete it, and it is made anew"):
        secure.prepare()


@pytest.mark.parametrize("name", ["peer-keys", "admin.token", ""])
def test_what_others_may_read_is_refused(name: str, secure: SecureFolder) -> None:
    secure.prepare()
    (secure.folder / name).chmod(0o744)
    with pytest.raises(InvalidInput, match=r"others may read .* mode is 0744: chmod"):
        secure.prepare()


@pytest.mark.parametrize("name", ["ca.key", "signing-keys.json", "ca.pem", "something", ""])
def test_what_others_may_write_is_refused(name: str, secure: SecureFolder) -> None:
    secure.prepare()
    (secure.folder / "something").touch()
    (secure.folder / name).chmod(0o620)
    with pytest.raises(InvalidInput, match=r"may be written by others, with its mode 0620: chmod go-w"):
        secure.prepare()


@pytest.mark.parametrize("name", ["ca.key", "peer-keys", "admin.header", ""])
def test_a_link_is_refused_and_nothing_is_written_behind_it(
    name: str, secure: SecureFolder, tmp_path: Path, clock: ManualClock
) -> None:
    others = SecureFolder(tmp_path / "others", "local", clock)
    others.prepare()
    before = texts(others)
    if name:
        secure.folder.mkdir(mode=0o700)
    (secure.folder / name).symlink_to(others.folder / name)
    with pytest.raises(InvalidInput, match="is a link, so what is there may be another's"):
        secure.prepare()
    assert texts(others) == before


def test_secrets_that_another_user_placed_are_refused(secure: SecureFolder, monkeypatch: pytest.MonkeyPatch) -> None:
    """All of them belong to somebody else, as far as this process can tell: and for nobody else's eyes, at that."""
    secure.prepare()
    user = os.geteuid()
    monkeypatch.setattr("os.geteuid", lambda: user + 1)
    with pytest.raises(InvalidInput, match=rf"secure' belongs to user {user} and not to you, who are user {user + 1}"):
        secure.prepare()
