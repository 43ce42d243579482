"""The response with a document of a service."""

import contextlib

from fastapi.responses import Response

from mq.forms.formats import JSON
from mq.http.reply import PageResponse
from mq.limits.read_budget import ReadLease
from mq.service.groups.answers import Document


def document_response(document: Document, lease: ReadLease) -> Response:
    """The document, as an endpoint of FastAPI returns it. It holds the lease until it is sent."""
    return PageResponse(document.parts, {}, JSON, lease, 201 if document.is_new else 200)


def done(lease: ReadLease) -> Response:
    """The response that something is done, without a body."""
    with contextlib.closing(lease):
        return Response(status_code=204)
