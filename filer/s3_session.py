"""How requests to S3 are sent: aiobotocore's session on httpx, with bodies in one piece."""

import io
from typing import TYPE_CHECKING

from aiobotocore.httpxsession import HttpxSession

if TYPE_CHECKING:
    from aiobotocore.awsrequest import HttpxAWSResponse
    from botocore.awsrequest import AWSPreparedRequest


class WholeBodySession(HttpxSession):
    """Sends bytes as they are.

    By itself it goes through them line by line, with a write to the connection for each: of a file of 8 MB, which ends
    a line every 256 bytes or so, that held up the event loop for more than a second.
    """

    async def send(self, request: "AWSPreparedRequest") -> "HttpxAWSResponse":
        """As `HttpxSession.send`."""
        if isinstance(request.body, io.BytesIO):
            request.body = request.body.getvalue()
        return await super().send(request)
