"""`GET /docs`: Swagger UI for the OpenAPI document. It comes from the package, not from a CDN.

Scripts of another site on a page of the broker would have all rights of its reader. So, by its Content-Security-Policy,
the page allows only scripts of the broker itself, and connections to it.
"""

from importlib import resources

from fastapi import APIRouter
from fastapi.responses import Response

from mq.base.errors import NotFound
from mq.http.routers import new_router
from mq.http.routes import DOCS, DOCS_FILE

_PACKAGE = "fastapi_swagger.resources"
_FILES = {
    "swagger-ui-bundle.js": "text/javascript",
    "swagger-ui.css": "text/css",
    "favicon-32x32.png": "image/png",
}
_PAGE = b"""<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>BraidMQ</title>
<link rel="icon" href="docs/favicon-32x32.png">
<link rel="stylesheet" href="docs/swagger-ui.css">
</head>
<body>
<div id="swagger-ui"></div>
<script src="docs/swagger-ui-bundle.js"></script>
<script src="docs/start.js"></script>
</body>
</html>
"""
_START = b"""SwaggerUIBundle({url: "openapi.json", dom_id: "#swagger-ui", deepLinking: true, validatorUrl: null});
"""
# Swagger UI sets styles of elements, and draws its icons from data URLs.
_POLICY = (
    "default-src 'none'; script-src 'self'; connect-src 'self'; style-src 'self' 'unsafe-inline'; "
    "img-src 'self' data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
_HEADERS = {"content-security-policy": _POLICY, "x-content-type-options": "nosniff", "referrer-policy": "no-referrer"}


def docs_router() -> APIRouter:
    """The page and its files."""
    router = new_router("docs")

    @router.serves(DOCS, include_in_schema=False)
    async def docs_page() -> Response:
        """The page."""
        return Response(_PAGE, 200, _HEADERS, "text/html")

    @router.serves(DOCS_FILE, include_in_schema=False)
    def docs_file(name: str) -> Response:
        """A file of the page. Read when it is asked for, which is seldom."""
        if name == "start.js":
            return Response(_START, 200, _HEADERS, "text/javascript")
        if name not in _FILES:
            raise NotFound("path", f"there is no file {name!r:.80} of the page /docs")
        return Response(resources.files(_PACKAGE).joinpath(name).read_bytes(), 200, _HEADERS, _FILES[name])

    return router
