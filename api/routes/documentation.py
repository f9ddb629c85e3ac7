"""GET /docs: FastAPI's page over /openapi.json, with a policy that lets the browser load that page's own parts and no other.

The parts come from a public CDN; a browser that cannot reach it still gets /openapi.json, which needs nothing.
"""

import base64
import hashlib
import re

from fastapi import APIRouter, Request, Response
from fastapi.openapi.docs import get_swagger_ui_html

_SWAGGER = "https://cdn.jsdelivr.net/npm/swagger-ui-dist@5/"

_INLINE_SCRIPT = re.compile(rb"<script>(.*?)</script>", re.DOTALL)


def router(title: str) -> APIRouter:
    routes = APIRouter(include_in_schema=False)

    @routes.get("/docs")
    async def documentation(request: Request) -> Response:
        page = get_swagger_ui_html(
            openapi_url=f"{request.scope.get('root_path', '').rstrip('/')}/openapi.json",
            title=title,
            swagger_js_url=f"{_SWAGGER}swagger-ui-bundle.js",
            swagger_css_url=f"{_SWAGGER}swagger-ui.css",
            swagger_favicon_url="data:,",
        )
        page.headers["content-security-policy"] = _policy(bytes(page.body))
        return page

    return routes


def _policy(page: bytes) -> str:
    """The one inline script is allowed by its hash. Swagger UI sets styles by itself, and draws its icons as data: URLs."""
    hashes = [base64.b64encode(hashlib.sha256(script).digest()).decode() for script in _INLINE_SCRIPT.findall(page)]
    scripts = " ".join([f"'sha256-{digest}'" for digest in hashes])
    return (
        f"default-src 'none'; script-src {_SWAGGER} {scripts}; style-src {_SWAGGER} 'unsafe-inline'; "
        "img-src 'self' data:; connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    )
