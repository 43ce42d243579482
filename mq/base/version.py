"""The version of this installation: `0.2.0`, or `0.2.0+g<commit>` if the build has named its commit."""

from importlib.metadata import PackageNotFoundError, version


def installed_version() -> str:
    """Return the version of the installed distribution; `0+source` if the code runs without being installed."""
    try:
        return version("braidmq")
    except PackageNotFoundError:
        return "0+source"


VERSION = installed_version()
