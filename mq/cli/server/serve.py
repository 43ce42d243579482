"""`mq serve`: run a broker. Each setting is an option, an environment variable and a key of a TOML file."""

import os
from pathlib import Path

from mq.cli.server.settings_options import settings_of, with_settings_options


def _serve(config: Path | None, quiet: bool, **flags: str | None) -> None:
    """Run a broker: alone or in a cluster, on a local directory or an object store.

    A flag overrides its BRAIDMQ_* variable, a variable overrides the file given by --config, the file the default.
    `mq config show` tells what is in force.
    """
    settings = settings_of(flags, os.environ, config).settings
    # Imported here, so that the other commands start without the server's modules.
    from filer.clock import SystemClock
    from mq.cli.output import readers_or_none, write_out
    from mq.cli.server.start_message import start_line, start_message
    from mq.process.log_output import write_log
    from mq.process.server import Serving
    from mq.process.server import serve as serve_broker

    def on_ready(serving: Serving) -> None:
        if not quiet:
            is_json = settings.log_format == "json"
            text = start_line(serving, clock.now_us()) if is_json else start_message(serving)
            with readers_or_none():
                write_out(text.encode())

    clock = SystemClock()
    log = write_log(settings.log_level, settings.log_format, clock)
    serve_broker(settings, on_ready, log)


serve = with_settings_options(_serve)
