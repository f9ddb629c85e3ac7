"""Words <-> numbers: text -> EncodedText before the queue, token ids -> words after it. It queues nothing.

An invalid text is refused here, before it costs a hop. Truncation is off: it would drop the mask without a word.
"""

import asyncio
import re
import unicodedata
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import lru_cache
from itertools import accumulate
from typing import Any, TypeVar

from tokenizers import Encoding, Tokenizer
from tokenizers.implementations.bert_wordpiece import BertWordPieceTokenizer
from tokenizers.models import WordPiece

from api.words import Placed
from common.checkpoint import Checkpoint
from common.errors import BadTarget, NoMask, StartupError, TextTooLong, TooManyMasks, TooManyTokens

Encoded = TypeVar("Encoded", bound=list[Any])

_INLINE_CHARS = 2_000
"""Up to here tokenising takes about a millisecond and is done on the event loop; longer input goes to a thread."""

_PORTION_CHARS = 16_000
"""So much is tokenised at a time in a thread: some 20 ms, and enough texts to occupy all cores."""

_THREADS = 2
"""Tokenising uses all cores by itself. More threads would only contend with the event loop for the interpreter."""

_TARGET_CHARS = 64
"""Longer ones are no words, and would only cost time."""

_LOOK_ALIKES = re.compile(r"[\[<{(【〔「]\s*(?:mask|blank)\s*[\]>})】〕」]|_{2,}|﹍{2,}")

_LATIN = re.compile(r"[0-9A-Za-zÀ-ɏ]{2}")


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
        self._threads = ThreadPoolExecutor(_THREADS, "tokenizer")
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
            return [self._checked(index, text, self._tokenizer.encode(text)) for index, text in enumerate(texts)]
        return await self._in_thread(self._encode_long, texts)

    def whole_texts(self, texts: Sequence[str]) -> list[list[int]]:
        """Token ids with special tokens, mask or not, however long: what int8 is calibrated and compared on."""
        return [encoding.ids for encoding in self._tokenizer.encode_batch(list(texts))]

    def target_ids(self, targets: Sequence[str]) -> list[int]:
        """The id of each target, once. Raises BadTarget naming the position of each that is not one token of its own.

        A word-initial piece is tried first where the vocabulary tells it from a word's middle.
        """
        found = [self._target_id(target) for target in targets]
        bad = [index for index, token_id in enumerate(found) if token_id is None]
        if bad:
            raise BadTarget(
                f"targets at {bad} are not single ordinary tokens of this model's vocabulary, so they have no score of their own",
                targets=bad,
            )
        return list(dict.fromkeys([token_id for token_id in found if token_id is not None]))

    async def place(self, encoded: EncodedText, targets: Sequence[str]) -> list[Placed]:
        """The text's tokens with each target instead of its only mask. Raises BadTarget naming those that cannot stand there.

        The tokens are those of the whole sentence: a piece that begins a word stands after a space, and there only. Where
        BPE and SentencePiece would make one piece of the target's end and its neighbour, the target's own pieces are put in.
        """
        start, end = encoded.mask_spans[0]
        before, after = encoded.text[:start], encoded.text[end:]
        cut = [target[: _TARGET_CHARS + 1] for target in targets]
        encodings = await self._in_thread(self._tokenizer.encode_batch, [f"{before}{target}{after}" for target in cut])
        found = [
            self._placed(encoding, before, target) or self._spliced(encoded, target)
            for encoding, target in zip(encodings, cut, strict=True)
        ]
        bad = [index for index, placed in enumerate(found) if placed is None]
        if bad:
            raise BadTarget(
                f"targets at {bad} are not at most {_TARGET_CHARS} characters of ordinary tokens that begin and end where "
                "the mask does, or with them the text is too long",
                targets=bad,
            )
        return [placed for placed in found if placed is not None]

    def filled_run(self, encoded: EncodedText, masks: range, words: Sequence[Word]) -> tuple[str, str]:
        """(the words as they stand in the text, the submitted text with only the spans of those masks replaced)."""
        start, made_to = encoded.mask_spans[masks[0]][0], 0
        made = ""
        for mask, word in zip(masks, words, strict=True):
            mask_start, mask_end = encoded.mask_spans[mask]
            made += encoded.text[made_to:mask_start]
            made_to = mask_end
            made += self._space(made, word, first=mask == masks[0]) + word.text
        return made[start:].lstrip(), made + encoded.text[made_to:]

    def filled(self, encoded: EncodedText, mask: int, word: Word) -> str:
        """The submitted text with only the span of that mask replaced."""
        start, end = encoded.mask_spans[mask]
        before = encoded.text[:start]
        space = " " if word.spaced and before and not before[-1].isspace() else ""
        return f"{before}{space}{word.text}{encoded.text[end:]}"

    async def _in_thread(self, encode: Callable[[Sequence[str]], Encoded], texts: Sequence[str]) -> Encoded:
        return await asyncio.get_running_loop().run_in_executor(self._threads, encode, texts)

    def _encode_long(self, texts: Sequence[str]) -> list[EncodedText]:
        """Portion by portion: the first text that is refused ends it, before much is spent on those behind."""
        checked: list[EncodedText] = []
        while len(checked) < len(texts):
            first = len(checked)
            ends = accumulate(map(len, texts[first:]))
            portion = texts[first : first + max(1, sum(1 for chars in ends if chars <= _PORTION_CHARS))]
            encodings = self._tokenizer.encode_batch(list(portion))
            checked += [self._checked(first + index, text, encodings[index]) for index, text in enumerate(portion)]
        return checked

    def _placed(self, encoding: Encoding, before: str, target: str) -> Placed | None:
        """Where the tokens of the target are; None if one of them reaches into the text beside it or is no ordinary token."""
        start, end = len(before), len(before) + len(target)
        token_ids, spans = encoding.ids, encoding.offsets
        positions = [
            place for place, (first, last) in enumerate(spans) if first < last and last > start and first < end
        ]
        if not positions or not target.strip() or len(target) > _TARGET_CHARS:
            return None
        if len(token_ids) > self._checkpoint.max_tokens:
            return None
        reaches_out = before[spans[positions[0]][0] :].strip() or spans[positions[-1]][1] > end
        if reaches_out or not self._ordinary(token_ids[place] for place in positions):
            return None
        return Placed(token_ids, positions)

    def _spliced(self, encoded: EncodedText, target: str) -> Placed | None:
        """The target's own pieces instead of the mask's; None for WordPiece, where a word's middle has pieces of its own."""
        if self._word_piece or not target.strip() or len(target) > _TARGET_CHARS:
            return None
        encoding = self._tokenizer.encode(target, add_special_tokens=False)
        pieces = encoding.ids[1:] if encoding.tokens[0] in ("▁", "Ġ") else encoding.ids
        first = encoded.mask_positions[0]
        token_ids = [*encoded.token_ids[:first], *pieces, *encoded.token_ids[first + 1 :]]
        if not pieces or not self._ordinary(pieces) or len(token_ids) > self._checkpoint.max_tokens:
            return None
        return Placed(token_ids, list(range(first, first + len(pieces))))

    def _ordinary(self, token_ids: Iterable[int]) -> bool:
        return self._checkpoint.special_token_ids.isdisjoint(token_ids)

    def _space(self, made: str, word: Word, first: bool) -> str:
        """What stands between the text so far and a word: two words of WordPiece in Latin letters need a space, too."""
        if word.spaced:
            return " " if made and not made[-1].isspace() else ""
        apart = self._word_piece and not first and not word.token.startswith("##")
        return " " if apart and _LATIN.fullmatch(made[-1:] + word.text[:1]) else ""

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
