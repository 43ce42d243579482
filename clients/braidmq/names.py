"""Names in addresses: checked here, since `..` or a slash would silently become another address."""

import filer.errors
from braidmq.errors import InvalidName
from filer.keys import check_name


def topic_path(topic: str) -> str:
    """The address of a topic on its broker; raises `InvalidName`."""
    try:
        return f"/v1/topics/{check_name(topic)}"
    except filer.errors.InvalidName as failure:
        raise InvalidName(str(failure)) from failure
