"""The version of this installation: `0.2.0`, and `0.2.0+g<commit>` where whoever built it has said of what."""

from importlib.metadata import PackageNotFoundError, version


def installed_version() -> str:
    """The version of the installed distribution; `0+source` if the code runs without being installed."""
    try:
        return version("braidmq")
    except PackageNotFoundError:
        return "0+source"


VERSION = installed_version()
