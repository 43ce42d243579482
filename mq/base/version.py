"""The version of this installation."""

from importlib.metadata import PackageNotFoundError, version


def installed_version() -> str:
    """The version of the installed distribution; `0+source` if the code runs without being installed."""
    try:
        return version("braidmq")
    except PackageNotFoundError:
        return "0+source"


VERSION = installed_version()
