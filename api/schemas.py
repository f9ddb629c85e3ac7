"""The public contract of our own dialect, with examples; other dialects keep theirs beside their routes."""

from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field
from typing_extensions import TypedDict

Score = Annotated[float, Field(ge=0, le=1, description="probability over the whole vocabulary")]


class RequestBody(BaseModel):
    """Base of every dialect's request: strict types, unknown fields refused."""

    model_config = ConfigDict(strict=True, extra="forbid", frozen=True)


class FillMaskRequest(RequestBody):
    model_config = ConfigDict(json_schema_extra={"examples": [{"texts": ["床前明月光，疑是地[MASK]霜。"], "top_k": 5}]})

    texts: list[str] = Field(min_length=1, description="each with at least one mask token")
    top_k: int = Field(5, ge=1, description="candidates a mask")
    targets: list[str] | None = Field(
        None, min_length=1, description="score these words instead; each must be one token of the model"
    )


class CandidateBody(TypedDict):
    token_id: int
    token: Annotated[str, Field(description="the vocabulary entry as it stands, such as ##们")]
    word: Annotated[str, Field(description="what is put into the text")]
    score: Score
    filled_text: Annotated[str, Field(description="the submitted text with only this mask replaced")]


class MaskBody(TypedDict):
    start: Annotated[int, Field(description="where the mask starts in the text, in characters")]
    end: Annotated[int, Field(description="where it ends, exclusive")]
    token_position: Annotated[int, Field(description="which token it is, special ones counted")]
    candidates: Annotated[list[CandidateBody], Field(description="most probable first")]


class TextBody(TypedDict):
    masks: Annotated[list[MaskBody], Field(description="one a mask, in the order of the text; marginals, independent")]
    unknown_tokens: Annotated[
        int, Field(description="tokens that the model's vocabulary lacks; they weaken its answers")
    ]


class FillMaskResponse(TypedDict):
    model: str
    revision: str
    results: Annotated[list[TextBody], Field(description="one a text, in order")]


class ErrorBody(TypedDict):
    """The shape of every error."""

    error: Annotated[str, Field(description="one sentence")]
    error_type: Annotated[str, Field(description="a code that does not change between releases")]
