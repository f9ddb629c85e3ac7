"""What the OpenAPI document says of routes that read their request themselves: errors, bodies, path parameters."""

from typing import Any

from pydantic import BaseModel

from api.schemas import ErrorBody

ERRORS: dict[int | str, dict[str, object]] = {
    400: {"model": ErrorBody, "description": "malformed body"},
    401: {"model": ErrorBody, "description": "no API key, or an unknown one, where keys are needed"},
    413: {"model": ErrorBody, "description": "body too large"},
    415: {"model": ErrorBody, "description": "not application/json, or with a Content-Encoding"},
    422: {"model": ErrorBody, "description": "refused input: no_mask, too_long, bad_target, ..."},
    429: {"model": ErrorBody, "description": "the caller's share is used up; see Retry-After and RateLimit"},
    500: {"model": ErrorBody, "description": "the model failed on this input"},
    503: {"model": ErrorBody, "description": "overloaded, no worker, or Redis away; see Retry-After"},
    504: {"model": ErrorBody, "description": "not answered before the deadline"},
}

UNKNOWN_MODEL: dict[int | str, dict[str, object]] = {404: {"model": ErrorBody, "description": "another model"}}


def json_body(model: type[BaseModel]) -> dict[str, Any]:
    """The body, its schema in place: a reference would lead nowhere, for these models are in no common section."""
    schema = model.model_json_schema()
    schema = _in_place(schema, schema.pop("$defs", {}))
    return {"requestBody": {"required": True, "content": {"application/json": {"schema": schema}}}}


def path_parameters(*names: str) -> dict[str, Any]:
    return {
        "parameters": [{"name": name, "in": "path", "required": True, "schema": {"type": "string"}} for name in names]
    }


def _in_place(schema: Any, definitions: dict[str, Any]) -> Any:
    if isinstance(schema, list):
        return [_in_place(entry, definitions) for entry in schema]
    if not isinstance(schema, dict):
        return schema
    if "$ref" in schema:
        return _in_place(definitions[schema["$ref"].rpartition("/")[2]], definitions)
    return {key: _in_place(entry, definitions) for key, entry in schema.items()}
