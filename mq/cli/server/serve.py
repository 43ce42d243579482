"""`mq serve`: run a broker. Each setting is an option, an environment variable and a key of a TOML file."""

import logging
import os
import sys
from pathlib import Path

from mq.cli.server.settings_options import LogLevel, settings_of, with_settings_options

# The info messages of libraries repeat what is logged elsewhere; kazoo warns at every attempt to connect.
_LIBRARY_LEVELS = {
    "uvicorn": "WARNING",
    "aiobotocore": "WARNING",
    "botocore": "WARNING",
    "httpx": "WARNING",
    "kazoo": "ERROR",
}


def _serve(config: Path | None, quiet: bool, log_level: LogLevel, **flags: str | None) -> None:
    """Run a broker: alone or in a cluster, on a local directory or an object store.

    A flag overrides its BRAIDMQ_* variable, a variable overrides the file given by --config, the file the default.
    `mq config show` tells what is in force.
    """
    settings = settings_of(flags, os.environ, config).settings
    logging.basicConfig(
        stream=sys.stderr, level=log_level.upper(), format="%(asctime)s %(levelname)s %(name)s: %(message)s"
    )
    for library, level in _LIBRARY_LEVELS.items():
        logging.getLogger(library).setLevel("DEBUG" if log_level == "debug" else level)

    # Imported here, so that the other commands start without the server's modules.
    from mq.cli.server.start_message import start_message
    from mq.process.server import Serving
    from mq.process.server import serve as serve_broker

    def on_ready(serving: Serving) -> None:
        if not quiet:
            sys.stdout.write(start_message(serving))
            sys.stdout.flush()

    serve_broker(settings, on_ready)


serve = with_settings_options(_serve)
