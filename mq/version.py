"""The version of this installation."""

from importlib.metadata import PackageNotFoundError, version


def installed_version() -> str:
    """Of the installed distribution; `0+source` where the code runs uninstalled."""
    try:
        return version("braidmq")
    except PackageNotFoundError:
        return "0+source"


VERSION = installed_version()
