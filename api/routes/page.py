"""GET /: the page, and GET /web/...: its scripts and styles as they lie in api/web/. No build step, and no other host is asked.

All its links are relative, so that it works under any path prefix. The browser runs no script and takes no style but these.
"""

from pathlib import Path

from fastapi import APIRouter, Request, Response
from starlette.staticfiles import StaticFiles

FOLDER = Path(__file__).resolve().parents[1] / "web"

HEADERS = {
    "content-security-policy": "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; "
    "img-src 'self' data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    "cache-control": "no-cache",  # kept, but asked for each time: the ETag answers, and a new release shows at once
}


def router() -> APIRouter:
    routes = APIRouter(include_in_schema=False)
    files = StaticFiles(directory=FOLDER)

    async def file(name: str, request: Request) -> Response:
        response = await files.get_response(name, request.scope)
        response.headers.update(HEADERS)
        return response

    @routes.get("/")
    async def page(request: Request) -> Response:
        return await file("index.html", request)

    @routes.get("/web/{name:path}")
    async def part(name: str, request: Request) -> Response:
        return await file(name, request)

    return routes
