"""The public contract of our own dialect, with examples; other dialects keep theirs beside their routes."""

from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field
from typing_extensions import TypedDict

TopK = Annotated[int, Field(ge=1, le=(1 << 31) - 1, description="candidates a mask; 5, or all targets, if not given")]

Score = Annotated[float, Field(ge=0, le=1, description="probability over the whole vocabulary")]


class RequestBody(BaseModel):
    """Base of every dialect's request: strict types, unknown fields refused."""

    model_config = ConfigDict(strict=True, extra="forbid", frozen=True)


class FillMaskRequest(RequestBody):
    model_config = ConfigDict(json_schema_extra={"examples": [{"texts": ["床前明月光，疑是地[MASK]霜。"], "top_k": 5}]})

    texts: list[str] = Field(
        min_length=1, description="each with at least one mask token; one that is refused refuses all"
    )
    top_k: TopK = 5
    targets: list[str] | None = Field(
        None, min_length=1, description="score these words instead, each once; each must be one token of the model"
    )
    score_targets: Literal["single_token", "pseudo_likelihood"] = Field(
        "single_token",
        description="pseudo_likelihood: targets may have several tokens, in place of a text's only mask; "
        "log_likelihood is the sum over its tokens, from left to right, those to come masked; score is its exponential",
    )
    joint: bool = Field(
        False, description="decode neighbouring masks together into words; scored as pseudo_likelihood does"
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


class WordBody(TypedDict):
    """A word of one token or several, of pseudo_likelihood and of joint."""

    token_ids: list[int]
    word: Annotated[str, Field(description="what is put into the text")]
    score: Score
    log_likelihood: float
    filled_text: Annotated[str, Field(description="the submitted text with only these masks replaced")]


class GapBody(TypedDict):
    """As MaskBody, for a run of neighbouring masks that are decoded together or a mask that takes whole targets."""

    start: int
    end: int
    token_position: Annotated[int, Field(description="which token its first mask is, special ones counted")]
    candidates: Annotated[list[WordBody], Field(description="most probable first")]


class TextBody(TypedDict):
    masks: Annotated[
        list[MaskBody] | list[GapBody],
        Field(
            description="one a mask, in the order of the text; marginals, independent. With joint one a run of masks"
        ),
    ]
    unknown_tokens: Annotated[
        int, Field(description="tokens that the model's vocabulary lacks; they weaken its answers")
    ]


class WarningBody(TypedDict):
    warning_type: Annotated[str, Field(description="a code; unknown_tokens is the only one so far")]
    message: str
    index: Annotated[int, Field(description="which text")]


class FillMaskResponse(TypedDict):
    model: str
    revision: str
    warnings: Annotated[list[WarningBody], Field(description="what makes an answer weaker than it looks")]
    results: Annotated[list[TextBody], Field(description="one a text, in order")]


class ErrorBody(TypedDict):
    """The shape of every error."""

    error: Annotated[str, Field(description="one sentence")]
    error_type: Annotated[str, Field(description="a code that does not change between releases")]
