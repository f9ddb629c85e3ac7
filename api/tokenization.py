"""Words <-> numbers: text -> EncodedText before the queue, token ids -> words after it. It queues nothing.

An invalid text is refused here, before it costs a hop. Truncation is off: it would drop the mask without a word.
"""

import asyncio
import re
import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

from tokenizers import Encoding, Tokenizer
from tokenizers.implementations.bert_wordpiece import BertWordPieceTokenizer
from tokenizers.models import WordPiece

from common.checkpoint import Checkpoint
from common.errors import BadTarget, NoMask, StartupError, TextTooLong, TooManyMasks, TooManyTokens

_INLINE_CHARS = 2_000
"""Up to here tokenising takes about a millisecond and is done on the event loop; longer input goes to a thread."""

_LOOK_ALIKES = re.compile(r"[\[<{(【〔「]\s*(?:mask|blank)\s*[\]>})】〕」]|_{2,}|﹍{2,}")


@dataclass(frozen=True, slots=True)
class EncodedText:
    """A text ready for the queue. `mask_spans[i]` is where mask i stands in `text`, in characters, end exclusive."""

    text: str
    token_ids: list[int]
    mask_positions: list[int]
    mask_spans: list[tuple[int, int]]
    unknown_tokens: int


@dataclass(frozen=True, slots=True)
class Word:
    """A vocabulary entry as a reader sees it.

    token   as the tokenizer decodes it alone: `##们`, ` disease`
    text    what is put into the sentence: `们`, `disease`
    spaced  whether the entry brings a space of its own, as BPE and SentencePiece pieces do
    """

    token: str
    text: str
    spaced: bool


class TextTokenizer:
    """The checkpoint's own tokenizer, unchanged: its case, width and accents rules are the model's."""

    def __init__(self, checkpoint: Checkpoint, max_text_chars: int, max_masks: int) -> None:
        self._checkpoint = checkpoint
        self._tokenizer = _load(checkpoint)
        self._max_text_chars = max_text_chars
        self._max_masks = max_masks
        self._word_piece = isinstance(self._tokenizer.model, WordPiece)
        self.word = lru_cache(maxsize=None)(self._word)

    async def encode(self, texts: Sequence[str]) -> list[EncodedText]:
        """Raises TextTooLong, TooManyTokens, NoMask or TooManyMasks; `index` in the details says which text it was."""
        for index, text in enumerate(texts):
            if len(text) > self._max_text_chars:
                raise TextTooLong(
                    f"the text has {len(text)} characters; at most {self._max_text_chars} are taken",
                    index=index, characters=len(text), limit=self._max_text_chars,
                )  # fmt: skip
        if sum(map(len, texts)) <= _INLINE_CHARS:
            encodings = [self._tokenizer.encode(text) for text in texts]
        else:
            encodings = await asyncio.to_thread(self._tokenizer.encode_batch, list(texts))
        return [self._checked(index, text, encodings[index]) for index, text in enumerate(texts)]

    def target_ids(self, targets: Sequence[str]) -> list[int]:
        """The id of each target. Raises BadTarget naming the position of each that is not one token of its own.

        A word-initial piece is tried first where the vocabulary tells it from a word's middle.
        """
        found = [self._target_id(target) for target in targets]
        bad = [index for index, token_id in enumerate(found) if token_id is None]
        if bad:
            raise BadTarget(
                f"targets at {bad} are not single ordinary tokens of this model's vocabulary, so they have no score of their own",
                targets=bad,
            )
        return [token_id for token_id in found if token_id is not None]

    def filled(self, encoded: EncodedText, mask: int, word: Word) -> str:
        """The submitted text with only the span of that mask replaced."""
        start, end = encoded.mask_spans[mask]
        before = encoded.text[:start]
        space = " " if word.spaced and before and not before[-1].isspace() else ""
        return f"{before}{space}{word.text}{encoded.text[end:]}"

    def _checked(self, index: int, text: str, encoding: Encoding) -> EncodedText:
        token_ids = encoding.ids
        facts = self._checkpoint
        if len(token_ids) > facts.max_tokens:
            raise TooManyTokens(
                f"the text has {len(token_ids)} tokens, special ones included; the model takes {facts.max_tokens}",
                index=index, tokens=len(token_ids), limit=facts.max_tokens,
            )  # fmt: skip
        positions = [position for position, token_id in enumerate(token_ids) if token_id == facts.mask_token_id]
        if not positions:
            raise NoMask(_no_mask(text, facts.mask_token), index=index, mask_token=facts.mask_token)
        if len(positions) > self._max_masks:
            raise TooManyMasks(
                f"the text has {len(positions)} masks; at most {self._max_masks} are filled at once",
                index=index, masks=len(positions), limit=self._max_masks,
            )  # fmt: skip
        spans = [self._mask_span(text, encoding.token_to_chars(position) or (0, 0)) for position in positions]
        return EncodedText(text, token_ids, positions, spans, _count(token_ids, facts.unknown_token_id))

    def _mask_span(self, text: str, token_span: tuple[int, int]) -> tuple[int, int]:
        """A mask token may have swallowed the spaces beside it (`lstrip`); they are the user's and stay."""
        start, end = token_span
        exact = text.find(self._checkpoint.mask_token, start, end)
        return (start, end) if exact < 0 else (exact, exact + len(self._checkpoint.mask_token))

    def _target_id(self, target: str) -> int | None:
        for piece in (f"Ġ{target}", f"▁{target}", target):
            token_id = self._tokenizer.token_to_id(piece)
            if token_id is not None:
                usable = token_id not in self._checkpoint.special_token_ids
                return token_id if usable else None
        return None

    def _word(self, token_id: int) -> Word:
        piece = self._tokenizer.id_to_token(token_id) or ""
        token = self._tokenizer.decode([token_id], skip_special_tokens=False)
        text = token.removeprefix("##") if self._word_piece else token.removeprefix(" ")
        return Word(token, text, spaced=piece.startswith(("Ġ", "▁")) and bool(text))


def _load(checkpoint: Checkpoint) -> Tokenizer:
    path = checkpoint.folder / "tokenizer.json"
    try:
        if path.is_file():
            tokenizer = Tokenizer.from_file(str(path))
        else:
            tokenizer = BertWordPieceTokenizer(
                str(checkpoint.folder / "vocab.txt"),
                lowercase=checkpoint.lower_case,
                strip_accents=checkpoint.lower_case,
            )._tokenizer
            tokenizer.add_special_tokens([checkpoint.mask_token])
    except Exception as error:  # the library raises bare Exception for a broken file
        raise StartupError(f"the tokenizer in {checkpoint.folder} cannot be read: {error}") from None
    tokenizer.no_truncation()
    tokenizer.no_padding()
    return tokenizer


def _count(token_ids: list[int], token_id: int | None) -> int:
    return 0 if token_id is None else token_ids.count(token_id)


def _no_mask(text: str, mask_token: str) -> str:
    folded = unicodedata.normalize("NFKC", text).casefold()
    sentence = f"the text has no {mask_token}, so there is nothing to fill"
    if _LOOK_ALIKES.search(folded):
        return f"{sentence}; it has something that looks like a mask: this model's is spelt exactly {mask_token}"
    return sentence
