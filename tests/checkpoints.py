"""Tiny random checkpoints of seven architectures, built offline in a second. They know no language: only shapes and files.

Weights are drawn so wide that distributions are peaked and every text has its own answer.
"""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tokenizers import AddedToken, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers

CHINESE = (
    "的一是不了人我在有他这中大来上国个到说们为子和你地出道也时年得就那要下以生会自着去之过家学对可里后小么心多天而能好都然没"
    "日于起还发成事只作当想看文无开手十用主行方又如前所本见经头面公同三已老从动两长知民样现分将外但身些与高意进把法此实回二理"
    "美点月明其种声全工己话儿者向情部正名定女问力机给等几很业最间新什打便位因重被走电四第门相次东政海口使教西再平真听世气信北"
    "少关并内加化由却代军产入先山五太水万市眼体别处总才场师书比住员九笑性通目华报立马命张活难神数件安表原车白应路期叫死常提感"
    "金何更反合放做系计或司利受光王果亲界及今京务制解各任至清物台象记边共风战干接它许八特觉望直服毛林题建南度统色字请交爱让认"
    "春夏秋冬花雪雨云星空夜晚早床疑似霜举首低思故乡"
)
SENTENCES = (
    "The capital of France is Paris.",
    "The weather is nice today, and we walk in the park.",
    "A good book is the best of friends.",
    "It's 5 o'clock; the price is 3.14 euros.",
    "床前明月光，疑是地上霜。",
    "今天天气很好，我们去公园走走吧。",
    "中国的首都是北京。",
)
_ASCII = "".join(chr(code) for code in range(33, 127))
_PUNCTUATION = "，。！？：；“”、（）《》…—"

ARCHITECTURES = ("bert", "roberta", "xlm-roberta", "albert", "distilbert", "electra", "modernbert")


def build_checkpoint(architecture: str, folder: Path, seed: int = 7) -> Path:
    """Writes tokenizer.json, tokenizer_config.json, config.json and model.safetensors of one of ARCHITECTURES to `folder`."""
    import torch
    from transformers import AutoConfig, AutoModelForMaskedLM

    tokenizer = _TOKENIZERS[architecture]()
    options = _CONFIGS[architecture]
    tokenizer = _wrapped(tokenizer, architecture, options["max_position_embeddings"])
    torch.manual_seed(seed)
    config = AutoConfig.for_model(
        architecture,
        vocab_size=len(tokenizer),
        pad_token_id=tokenizer.pad_token_id,
        bos_token_id=tokenizer.cls_token_id,
        eos_token_id=tokenizer.sep_token_id,
        cls_token_id=tokenizer.cls_token_id,
        sep_token_id=tokenizer.sep_token_id,
        initializer_range=0.5,
        **options,
    )
    from_config: Callable[..., Any] = AutoModelForMaskedLM.from_config
    model = from_config(config).eval()
    with torch.no_grad():  # biases start at zero, and a bias that is lost on the way would then not show
        for name, parameter in model.named_parameters():
            if name.endswith("bias"):
                parameter.normal_(0.0, 0.5)
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder


def change_config(folder: Path, file: str = "config.json", **changes: Any) -> None:
    """Sets keys of a checkpoint's JSON file; None removes one."""
    content = json.loads((folder / file).read_text(encoding="utf-8")) | changes
    content = {key: value for key, value in content.items() if value is not None}
    (folder / file).write_text(json.dumps(content, ensure_ascii=False), encoding="utf-8")


def _bert_family(hidden: str, layers: str, heads: str, inner: str, **more: Any) -> dict[str, Any]:
    return {hidden: 32, layers: 2, heads: 4, inner: 64, **more}


_STANDARD = _bert_family("hidden_size", "num_hidden_layers", "num_attention_heads", "intermediate_size")
_CONFIGS: dict[str, dict[str, Any]] = {
    "bert": _STANDARD | {"max_position_embeddings": 512},
    "roberta": _STANDARD | {"max_position_embeddings": 130, "type_vocab_size": 1},
    "xlm-roberta": _STANDARD | {"max_position_embeddings": 66, "type_vocab_size": 1},
    "albert": _STANDARD | {"max_position_embeddings": 64, "embedding_size": 16},
    "distilbert": _bert_family("dim", "n_layers", "n_heads", "hidden_dim", max_position_embeddings=128),
    "electra": _STANDARD | {"max_position_embeddings": 96, "embedding_size": 24},
    "modernbert": _STANDARD | {"max_position_embeddings": 128, "local_attention": 16, "global_attn_every_n_layers": 2},
}


def _wordpiece() -> Tokenizer:
    pieces = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *_ASCII, *(f"##{c}" for c in _ASCII if c.isalnum())]
    pieces += [*dict.fromkeys(CHINESE + _PUNCTUATION), "the", "capital", "of", "is", "paris", "good", "##ing", "book"]
    vocabulary = {piece: index for index, piece in enumerate(pieces)}
    tokenizer = Tokenizer(models.WordPiece(vocabulary, unk_token="[UNK]"))
    tokenizer.normalizer = normalizers.BertNormalizer(lowercase=True)
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    tokenizer.decoder = decoders.WordPiece()
    return _with_ends(tokenizer, "[CLS]", "[SEP]")


def _byte_level(special: tuple[str, ...]) -> Tokenizer:
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=600,
        min_frequency=1,
        special_tokens=list(special),
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator([*SENTENCES, CHINESE], trainer)
    return _with_ends(tokenizer, special[0], special[2])


def _unigram(special: tuple[str, ...], mask: str) -> Tokenizer:
    words = {f"▁{word}" for sentence in SENTENCES for word in sentence.split() if word.isascii()}
    pieces = ["▁", *sorted(words), *_ASCII, *dict.fromkeys(CHINESE + _PUNCTUATION)]
    scored = [(piece, -2.0 - index / 100) for index, piece in enumerate(pieces)]
    entries = [*((token, 0.0) for token in special), *scored, (mask, 0.0)]
    tokenizer = Tokenizer(models.Unigram(entries, unk_id=special.index("<unk>"), byte_fallback=False))
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace()
    tokenizer.decoder = decoders.Metaspace()
    return _with_ends(tokenizer, special[0], special[2])


def _with_ends(tokenizer: Tokenizer, first: str, last: str) -> Tokenizer:
    ends = [(token, tokenizer.token_to_id(token)) for token in (first, last)]
    tokenizer.post_processor = processors.TemplateProcessing(
        single=f"{first} $A {last}", pair=f"{first} $A {last} $B {last}", special_tokens=ends
    )
    return tokenizer


_TOKENIZERS: dict[str, Callable[[], Tokenizer]] = {
    "bert": _wordpiece,
    "distilbert": _wordpiece,
    "electra": _wordpiece,
    "roberta": lambda: _byte_level(("<s>", "<pad>", "</s>", "<unk>", "<mask>")),
    "modernbert": lambda: _byte_level(("[CLS]", "[PAD]", "[SEP]", "[UNK]", "[MASK]")),
    "xlm-roberta": lambda: _unigram(("<s>", "<pad>", "</s>", "<unk>"), "<mask>"),
    "albert": lambda: _unigram(("[CLS]", "<pad>", "[SEP]", "<unk>"), "[MASK]"),
}


def _wrapped(tokenizer: Tokenizer, architecture: str, positions: int) -> Any:
    import transformers

    wrap: Callable[..., Any] = transformers.PreTrainedTokenizerFast
    angled = architecture in ("roberta", "xlm-roberta")
    pad = "<pad>" if angled or architecture == "albert" else "[PAD]"
    unknown = "<unk>" if angled or architecture == "albert" else "[UNK]"
    mask = "<mask>" if angled else "[MASK]"
    spaced = architecture in ("roberta", "xlm-roberta", "albert", "modernbert")  # the mask swallows the space before it
    return wrap(
        tokenizer_object=tokenizer,
        model_max_length=positions - (2 if angled else 0),
        cls_token="<s>" if angled else "[CLS]",
        sep_token="</s>" if angled else "[SEP]",
        pad_token=pad,
        unk_token=unknown,
        mask_token=AddedToken(mask, lstrip=spaced, special=True),
    )
