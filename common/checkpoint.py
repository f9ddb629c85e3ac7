"""Facts from a model's own files: where they lie, its mask token, its limits, and the fingerprint that names its queue.

It reads JSON and nothing else: no weights, no tokenizer library. Both sides compute the same fingerprint from the same
files, and so meet on the same queue or not at all.
"""

import hashlib
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from common.errors import StartupError

FACTS = ("config.json", "tokenizer.json", "tokenizer_config.json", "special_tokens_map.json", "vocab.txt")
"""Files that decide what a text means to the model; the fingerprint covers them."""

_OFFSET_POSITIONS = frozenset(
    ("roberta", "xlm-roberta", "xlm-roberta-xl", "camembert", "roberta-prelayernorm", "data2vec-text", "ibert", "xmod")
)
"""Families that number positions from padding_idx + 1: roberta-base has 514 embeddings and takes 512 tokens."""


@dataclass(frozen=True)
class Checkpoint:
    """A masked-language model on disk. `max_tokens` counts special tokens; `revision` is the hub's commit when there is one.

    `lower_case` matters only where vocab.txt is all there is; a tokenizer.json brings its own rules.
    """

    folder: Path
    name: str
    revision: str
    architecture: str
    mask_token: str
    mask_token_id: int
    pad_token_id: int
    unknown_token_id: int | None
    start_token_id: int | None
    end_token_id: int | None
    special_token_ids: frozenset[int]
    lower_case: bool
    vocabulary_size: int
    max_tokens: int
    fingerprint: str

    @property
    def title(self) -> str:
        """The name that callers see: a hub id as it is, a folder without the path that leads to it."""
        return self.folder.name if Path(self.name).expanduser().is_dir() else self.name


def open_checkpoint(name: str, revision: str = "main") -> Checkpoint:
    """Finds a model's files, fetching the small ones from the hub if need be, and reads its facts.

    Raises StartupError with one line: nothing there, no permission, not a masked-language model, no mask token.
    """
    folder = fetch(name, revision, FACTS)
    config = _read_json(folder, "config.json")
    if not config:
        raise StartupError(f"{folder} holds no config.json, so it is no model folder")
    architecture = _masked_language_model(config, name)
    if not (folder / "tokenizer.json").is_file() and not (folder / "vocab.txt").is_file():
        raise StartupError(
            f"{name} has neither tokenizer.json nor vocab.txt; save it once with transformers: "
            f"AutoTokenizer.from_pretrained({name!r}).save_pretrained(folder)"
        )
    tokens = _SpecialTokens(folder)
    mask_token = tokens.name_of("mask_token")
    mask_token_id = tokens.id_of(mask_token)
    if mask_token is None or mask_token_id is None:
        raise StartupError(f"the tokenizer of {name} defines no mask token, so there is nothing it could fill")
    pad = tokens.id_of(tokens.name_of("pad_token"))
    found_revision = folder.name if folder.parent.name == "snapshots" else revision
    return Checkpoint(
        folder=folder,
        name=name,
        revision=found_revision,
        architecture=architecture,
        mask_token=mask_token,
        mask_token_id=mask_token_id,
        pad_token_id=pad if pad is not None else config.get("pad_token_id") or 0,
        unknown_token_id=tokens.id_of(tokens.name_of("unk_token")),
        start_token_id=tokens.id_of(tokens.name_of("cls_token") or tokens.name_of("bos_token")),
        end_token_id=tokens.id_of(tokens.name_of("sep_token") or tokens.name_of("eos_token")),
        special_token_ids=tokens.special_ids,
        lower_case=bool(tokens.config.get("do_lower_case", False)),
        vocabulary_size=int(config["vocab_size"]),
        max_tokens=_max_tokens(config, tokens.config, name),
        fingerprint=_fingerprint(folder, found_revision),
    )


def fetch(name: str, revision: str, patterns: tuple[str, ...]) -> Path:
    """The folder with those files of a model: the folder itself if it is local, else the hub's cache, filled.

    HF_ENDPOINT, HF_TOKEN, HF_HUB_OFFLINE and HF_HOME mean what huggingface_hub says they mean.
    """
    if not name.strip():
        raise StartupError("no model is named: give --model a folder or a hub id")
    local = Path(name).expanduser()
    if local.is_dir():
        return local.resolve()
    if local.is_absolute() or name.startswith((".", "~")) or name.count("/") > 1 or local.exists():
        raise StartupError(f"the model folder {name} does not exist; a hub id would read owner/name")
    return _fetch_from_hub(name, revision, patterns)


def _fetch_from_hub(name: str, revision: str, patterns: tuple[str, ...]) -> Path:
    from huggingface_hub import constants, snapshot_download
    from huggingface_hub.errors import (
        GatedRepoError,
        HFValidationError,
        LocalEntryNotFoundError,
        RepositoryNotFoundError,
        RevisionNotFoundError,
    )

    where = f"{name} on {constants.ENDPOINT}"
    try:
        return Path(snapshot_download(name, revision=revision, allow_patterns=list(patterns)))
    except GatedRepoError:
        reason = f"{where} is gated: accept its terms there and set HF_TOKEN"
    except RevisionNotFoundError:
        reason = f"{where} has no revision {revision}"
    except RepositoryNotFoundError:
        reason = f"{where} does not exist, or it is private and HF_TOKEN is missing"
    except HFValidationError:
        reason = f"{name} is neither a folder here nor a valid hub id"
    except LocalEntryNotFoundError:
        offline = "HF_HUB_OFFLINE is set" if constants.HF_HUB_OFFLINE else "the hub cannot be reached"
        reason = f"{name} is no folder here, {offline}, and the cache {constants.HF_HUB_CACHE} does not hold it"
    except OSError as error:
        reason = f"{where} cannot be fetched: {type(error).__name__}"
    raise StartupError(reason)


def read_vocabulary(folder: Path) -> dict[str, int]:
    """Piece -> id as the tokenizer's file says; empty if the file has no such table."""
    model = _read_json(folder, "tokenizer.json").get("model", {})
    vocab = model.get("vocab", {})
    if isinstance(vocab, list):  # Unigram: [[piece, log probability], ...]
        return {piece: index for index, (piece, _) in enumerate(vocab)}
    if not vocab and (folder / "vocab.txt").is_file():
        lines = (folder / "vocab.txt").read_text(encoding="utf-8").splitlines()
        return {piece: index for index, piece in enumerate(lines)}
    return dict(vocab)


class _SpecialTokens:
    """Names and ids of a tokenizer's special tokens, wherever its files keep them."""

    def __init__(self, folder: Path) -> None:
        self.config = _read_json(folder, "tokenizer_config.json")
        self._map = _read_json(folder, "special_tokens_map.json")
        self._vocabulary = read_vocabulary(folder)
        added = _read_json(folder, "tokenizer.json").get("added_tokens", [])
        self._added = {entry["content"]: int(entry["id"]) for entry in added}
        special = {int(entry["id"]) for entry in added if entry.get("special")}
        named = (
            self.id_of(self.name_of(role))
            for role in ("cls_token", "sep_token", "mask_token", "pad_token", "unk_token")
        )
        self.special_ids = frozenset(special | {token_id for token_id in named if token_id is not None})

    def name_of(self, role: str) -> str | None:
        for source in (self.config, self._map):
            entry = source.get(role)
            name = entry.get("content") if isinstance(entry, dict) else entry
            if isinstance(name, str):
                return name
        wordpiece = f"[{role.removesuffix('_token').upper()}]"  # vocab.txt alone: BERT's own names
        return wordpiece if self.id_of(wordpiece) is not None else None

    def id_of(self, name: str | None) -> int | None:
        return None if name is None else self._added.get(name, self._vocabulary.get(name))


def _masked_language_model(config: dict[str, Any], name: str) -> str:
    architectures = config.get("architectures") or []
    for architecture in architectures:
        if architecture.endswith(("ForMaskedLM", "ForPreTraining")) and not architecture.startswith(("GPT", "MBart")):
            return str(architecture)
    found = ", ".join(architectures) or "no architecture"
    raise StartupError(f"{name} says it is {found}; a masked-language model (...ForMaskedLM) is needed")


def _max_tokens(config: dict[str, Any], tokenizer_config: dict[str, Any], name: str) -> int:
    """The least of what the tokenizer and the position table allow; either may be missing or 1e30, not both."""
    limits = [int(limit) for limit in (tokenizer_config.get("model_max_length"),) if limit and limit < 1e9]
    positions = config.get("max_position_embeddings") or config.get("n_positions")
    if positions:
        offset = config.get("pad_token_id", 1) + 1 if config.get("model_type") in _OFFSET_POSITIONS else 0
        limits.append(int(positions) - offset)
    if not limits:
        raise StartupError(f"neither config.json nor tokenizer_config.json of {name} says how many tokens it takes")
    return min(limits)


def _fingerprint(folder: Path, revision: str) -> str:
    digest = hashlib.sha256(revision.encode())
    for file in FACTS:
        path = folder / file
        content = path.read_bytes() if path.is_file() else b""
        digest.update(f"\n{file} {len(content)}\n".encode())
        digest.update(content)
    return digest.hexdigest()[:16]


def _read_json(folder: Path, file: str) -> dict[str, Any]:
    path = folder / file
    if not path.is_file():
        return {}
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except ValueError:
        raise StartupError(f"{path} is no JSON") from None
    return content if isinstance(content, dict) else {}
