"""schemathesis makes up requests from the OpenAPI document: no answer is a 5xx, and every refusal has the one shape.

Its operations are asked for by hand: its pytest plugin does not know every pytest that we run with.
"""

from typing import Any

import schemathesis
from hypothesis import HealthCheck, Phase, given, settings
from stacks import Stack

EXAMPLES = 60


def test_no_request_breaks_it(stack: Stack) -> None:
    document: Any = schemathesis.openapi.from_url(f"http://127.0.0.1:{stack.port}/openapi.json")
    operations = [found.ok() for found in document.get_all_operations()]
    assert {"/v1/fill-mask", "/", "/v2/models/{model}/infer"} <= {operation.path for operation in operations}
    for operation in operations:
        attack(operation)


def attack(operation: Any) -> None:
    @settings(
        max_examples=EXAMPLES if operation.method == "post" else 5,
        deadline=None,
        database=None,
        phases=[Phase.explicit, Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    @given(operation.as_strategy())
    def answered(case: Any) -> None:
        response = case.call()
        assert response.status_code < 500, f"{case.method} {case.path}: {response.text}"
        if response.status_code >= 400:
            assert len(response.content) <= 4096
            assert {"error", "error_type"} <= response.json().keys()

    answered()
