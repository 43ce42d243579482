"""The hints of `mq local --secure`, and the context by which commands find its brokers while they run."""

import json
import shlex
from pathlib import Path

from filer.errors import InvalidInput
from mq.cli.context_file import Connection, Contexts, contexts_path, read_contexts, write_contexts
from mq.local.secure.secure_folder import FOLDER, TOKEN_FILE, SecureFolder


class LocalContext:
    """A context for the brokers of a local cluster: in use while they run, and the one before it afterwards."""

    def __init__(self, name: str, secure: SecureFolder) -> None:
        self.name, self._secure = name, secure
        self._before: str | None = None
        self._is_set = False

    def check(self) -> None:
        """Raise `InvalidInput` if there is a context of that name for something else."""
        self._with(read_contexts(contexts_path()), Connection("https://localhost"))

    def use(self, urls: list[str]) -> str:
        """Let commands use the context. Returns a line about it. Raises `InvalidInput` and `OSError`."""
        path = contexts_path()
        before = read_contexts(path)
        connection = Connection(",".join(urls), token_file=str(self._secure.token), ca=str(self._secure.ca))
        write_contexts(path, self._with(before, connection).using(self.name))
        self._before = before.current if before.current != self.name else None
        self._is_set = True
        replaced = "" if self._before is None else f", in the place of {self._before} until this ends"
        return f"Commands find the brokers by the context {self.name}, which is in use now{replaced}:"

    def leave(self) -> None:
        """Let commands use the context before again, if they use this one. This one stays for the next time."""
        if not self._is_set:
            return
        path = contexts_path()
        now = read_contexts(path)
        if now.current == self.name:
            write_contexts(path, now.using(self._before if self._before in now.by_name else None))

    def _with(self, contexts: Contexts, connection: Connection) -> Contexts:
        found = contexts.by_name.get(self.name)
        if found is not None and not _is_of_a_local_cluster(found):
            raise InvalidInput(
                f"the context {self.name} is there already, for {found.url}: name another one with --context"
            )
        return contexts.with_one(self.name, connection)


def secure_hints(secure: SecureFolder, cluster: str, urls: list[str], topic: str) -> list[str]:
    """Lines for programs, ready to paste: names of files, never a secret."""
    files = {"ca": str(secure.ca), "tokenFile": str(secure.token)}
    url, token = json.dumps(",".join(urls)), json.dumps(files["tokenFile"])
    ca, header = shlex.quote(files["ca"]), shlex.quote(f"@{secure.header}")
    variables = {"BRAIDMQ_URL": ",".join(urls), "BRAIDMQ_CA": files["ca"], "BRAIDMQ_TOKEN_FILE": files["tokenFile"]}
    keys = shlex.quote(str(secure.signing_keys))
    return [
        "With curl:",
        f"  curl --cacert {ca} -H {header} {urls[0]}/v1/topics",
        "In Python:",
        f"  Client({url}, ca={json.dumps(files['ca'])}, token_file={token})",
        "In Spark:",
        f'  read(spark, "{topic}", url={url}, credentials={json.dumps(files)})',
        "Programs and other terminals find the brokers, and may do everything, by these variables:",
        f"  export {' '.join(f'{name}={shlex.quote(value)}' for name, value in variables.items())}",
        "Make a token for somebody who may only read:",
        f"  mq token create ada --signing-keys {keys} --cluster {cluster} --topics {topic} --allow read > ada.token",
    ]


def _is_of_a_local_cluster(connection: Connection) -> bool:
    """Whether `mq local --secure` has made a context, for these brokers or for others on this machine."""
    return connection.token_file is not None and Path(connection.token_file).parts[-2:] == (FOLDER, TOKEN_FILE)
