"""api/tokenization.py on its own: what is a mask, what is left alone, what a target is. Ids are those of the field cases."""

import time
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from checkpoints import ARCHITECTURES, build_checkpoint, change_config
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from api.tokenization import TextTokenizer
from common.checkpoint import open_checkpoint
from common.errors import BadTarget, NoMask, TextTooLong, TooManyMasks, TooManyTokens

QUOTED = "他说：“今天[MASK]气真好……”——iPhone 15 Pro 也这么说。"


@pytest.fixture(scope="session")
def models(tmp_path_factory: pytest.TempPathFactory) -> Any:
    folder: Path = tmp_path_factory.mktemp("models")

    @cache
    def make(architecture: str) -> TextTokenizer:
        return TextTokenizer(open_checkpoint(str(build_checkpoint(architecture, folder / architecture))), 20_000, 8)

    return make


@pytest.mark.parametrize("architecture", ["bert", "roberta"])
async def test_m08_the_limit_is_the_models_where_the_tokenizer_names_none(architecture: str, tmp_path: Path) -> None:
    """One more than fits would reach outside the position table; RoBERTa's first position is the third."""
    folder = build_checkpoint(architecture, tmp_path / architecture)
    change_config(folder, "tokenizer_config.json", model_max_length=None)
    checkpoint = open_checkpoint(str(folder))
    limit = {"bert": 512, "roberta": 128}[architecture]
    tokenizer = TextTokenizer(checkpoint, 20_000, 64)
    (encoded,) = await tokenizer.encode([checkpoint.mask_token + "[" * (limit - 3)])
    assert len(encoded.token_ids) == limit
    with pytest.raises(TooManyTokens) as refused:
        await tokenizer.encode([checkpoint.mask_token + "[" * (limit - 2)])
    assert refused.value.details == {"index": 0, "tokens": limit + 1, "limit": limit}


@pytest.mark.parametrize(
    "text",
    [
        QUOTED,
        "中国：[MASK]。",
        "I don't know, it's 5 o'[MASK].",
        "价格是3.14元[MASK]",
        "https://a.com/x?y=1 [MASK]",
        "  two  spaces  [MASK]  there ",
        "深圳 iPhone-15 Pro[MASK] 😀",
    ],
)
async def test_m09_m10_nothing_but_the_span_changes(models: Any, text: str) -> None:
    tokenizer = models("bert")
    (encoded,) = await tokenizer.encode([text])
    for token_id in range(tokenizer._checkpoint.vocabulary_size):
        word = tokenizer.word(token_id)
        assert tokenizer.filled(encoded, 0, word) == text.replace("[MASK]", word.text)


@pytest.mark.parametrize("architecture", ["roberta", "xlm-roberta"])
async def test_m11_berts_mask_is_none_for_a_roberta(models: Any, architecture: str) -> None:
    with pytest.raises(NoMask, match="spelt exactly <mask>"):
        await models(architecture).encode(["The capital is [MASK]."])
    (encoded,) = await models(architecture).encode(["The capital is <mask>."])
    assert encoded.mask_spans == [(15, 21)]


async def test_m13_several_masks_keep_what_stands_between_them(models: Any) -> None:
    text = "今天 [MASK] [MASK]很好，[MASK][MASK]。"
    (encoded,) = await models("bert").encode([text])
    assert [text[start:end] for start, end in encoded.mask_spans] == ["[MASK]"] * 4
    word = models("bert").word(encoded.token_ids[1])
    assert models("bert").filled(encoded, 1, word) == f"今天 [MASK] {word.text}很好，[MASK][MASK]。"


def test_m16_only_ordinary_entries_are_targets(models: Any) -> None:
    tokenizer = models("bert")
    assert len(tokenizer.target_ids(["##ing", "天", "good", "。"])) == 4
    for target in ("[UNK]", "[MASK]", "[PAD]", "[CLS]", "iPhone", "AB", "鿿", "", " 天", "天 "):
        with pytest.raises(BadTarget):
            tokenizer.target_ids(["天", target])


@pytest.mark.parametrize("architecture", ["roberta", "modernbert", "xlm-roberta", "albert"])
def test_m15_a_words_beginning_is_tried_first(models: Any, architecture: str) -> None:
    """Where pieces carry their space, `good` is `Ġgood` or `▁good` if there is such a piece; a longer word is never cut to it."""
    tokenizer = models(architecture)
    words = {token_id: tokenizer.word(token_id) for token_id in range(tokenizer._checkpoint.vocabulary_size)}
    token_id, word = next((i, w) for i, w in words.items() if w.spaced and w.text.isalpha() and len(w.text) > 2)
    assert tokenizer.target_ids([word.text, word.text]) == [token_id], "and once"
    with pytest.raises(BadTarget) as refused:
        tokenizer.target_ids([word.text, f"{word.text}qx"])
    assert refused.value.details == {"targets": [1]}


STRANGE = [
    *("\u200b", "\u200d", "\ufeff", "\u0000", "\u00ad", "\u202e", "\u0301", "\u20dd", "\ufe0f", "\uffff", "\U0010ffff"),
    *(
        "\r\n",
        "\n",
        "\t",
        "\u2028",
        "\u0085",
        "\u3000",
        "\u00a0",
        " ",
        "👨‍👩‍👧",
        "🇨🇳",
        "ﬁ",
        "Ａ",
        "İ",
        "ß",
        "각",
        "क्षि",
        "𠮷",
    ),
    *(
        "مرحبا",
        "好",
        "a",
        "9",
        "[",
        "]",
        "<",
        ">",
        "[MASK",
        "<mask",
        "[SEP]",
        "</s>",
        "[UNK]",
        "<unk>",
        "▁",
        "Ġ",
        "##a",
    ),
]


@settings(max_examples=200, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.sampled_from(ARCHITECTURES), st.lists(st.sampled_from([*STRANGE, *["{}"] * 20]), max_size=8).map("".join))
async def test_m09_every_tokenizer_finds_the_masks_where_they_are(models: Any, architecture: str, text: str) -> None:
    tokenizer = models(architecture)
    mask = tokenizer._checkpoint.mask_token
    text = text.replace("{}", mask)
    places = [place for place in range(len(text)) if text.startswith(mask, place)]
    assume(0 < len(places) <= 8)
    (encoded,) = await tokenizer.encode([text])
    assert encoded.mask_spans == [(place, place + len(mask)) for place in places]
    word = tokenizer.word(encoded.token_ids[0])
    for index, (start, end) in enumerate(encoded.mask_spans):
        assert tokenizer.filled(encoded, index, word) == text[:start] + word.text + text[end:]


@pytest.mark.parametrize("invisible", ["\u200b", "\u0000", "\ufeff", "\u00ad", "\u200e"])
async def test_m26_invisible_characters_change_nothing(models: Any, invisible: str) -> None:
    plain, marked = await models("bert").encode(["今天[MASK]气", f"{invisible}今{invisible}天[MASK]{invisible}气"])
    assert marked.token_ids == plain.token_ids
    assert marked.mask_positions == plain.mask_positions
    word = models("bert").word(plain.token_ids[1])
    assert models("bert").filled(marked, 0, word) == f"{invisible}今{invisible}天{word.text}{invisible}气"


async def test_m26_wide_spaces_and_other_directions(models: Any) -> None:
    for text in ("今天\u3000[MASK]\n气", "مرحبا [MASK]", "\t[MASK]\r\n"):
        (encoded,) = await models("bert").encode([text])
        start, end = encoded.mask_spans[0]
        assert text[start:end] == "[MASK]"


async def test_m30_case_and_width_are_the_checkpoints_own(models: Any) -> None:
    from transformers import AutoTokenizer

    for architecture in ("bert", "roberta", "xlm-roberta"):
        tokenizer = models(architecture)
        load: Any = AutoTokenizer.from_pretrained
        theirs = load(tokenizer._checkpoint.folder)
        texts = [f"OpenAI A AAA Ａ１ ｛Ｗｉｄｅ｝ Ünï {theirs.mask_token}", QUOTED.replace("[MASK]", theirs.mask_token)]
        encoded = await tokenizer.encode(texts)
        assert [text.token_ids for text in encoded] == theirs(texts)["input_ids"], architecture


async def test_m32_one_very_long_word_costs_little(models: Any) -> None:
    word = "QUJDREVGR0hJSktMTU5PUFFSU1RVVldYWVo" * 500
    started = time.perf_counter()
    (encoded,) = await models("bert").encode([f"{word} [MASK]"])
    assert time.perf_counter() - started < 0.1
    assert encoded.unknown_tokens == 1
    assert models("bert").filled(encoded, 0, models("bert").word(encoded.token_ids[0])).startswith(word)


async def test_each_limit_tells_its_numbers(models: Any) -> None:
    tokenizer = models("bert")
    with pytest.raises(TextTooLong) as long:
        await tokenizer.encode(["[MASK]", "好" * 20_001])
    assert long.value.details == {"index": 1, "characters": 20_001, "limit": 20_000}
    with pytest.raises(TooManyMasks) as masks:
        await tokenizer.encode(["[MASK]", "[MASK]" * 9])
    assert masks.value.details == {"index": 1, "masks": 9, "limit": 8}
    with pytest.raises(TooManyTokens) as tokens:
        await tokenizer.encode(["[MASK]" + "好" * 300] * 70 + ["好" * 600 + "[MASK]"])
    assert tokens.value.details == {"index": 70, "tokens": 603, "limit": 512}


@settings(max_examples=30, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(st.integers(1, 700), min_size=1, max_size=60))
async def test_portions_in_a_thread_are_as_good_as_one_by_one(models: Any, lengths: list[int]) -> None:
    tokenizer = models("bert")
    texts = ["好天"[length % 2] * min(length, 500) + "[MASK]" for length in lengths]
    one_by_one = [(await tokenizer.encode([text]))[0] for text in texts]
    assert tokenizer._encode_long(texts) == one_by_one
    assert await tokenizer.encode(texts) == one_by_one
