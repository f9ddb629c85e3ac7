"""Trains the demo model from scratch: masked characters, packed rows, on a CPU or a CUDA device.

    python models/demo-zh/train.py --text FOLDER --run RUN --minutes 95 [--device cuda] [--compile]
    python models/demo-zh/train.py --run RUN --export models/demo-zh

FOLDER holds one UTF-8 text file a source, one line a passage; the model card lists the sources and their licences,
`mix.SHARES` names the files. RUN is a folder for the log and the checkpoint, saved every few minutes: start the same
command again and it goes on from there. The schedule follows the clock, not the step count, so that the learning rate
reaches zero when the minutes are over, however busy the machine is.

Needs torch >= 2.9 (its Muon) and transformers. The mixing is in mix.py, the model folder is written by export.py.
"""

import argparse
import json
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path

import numpy as np
import torch
from export import export
from mix import CLS, HAN, MASK, SEP, Batch, Corpus, make_vocabulary
from numpy.typing import NDArray
from torch import Tensor
from torch.nn.functional import cross_entropy
from transformers import BertConfig, BertForMaskedLM

MAX_LENGTH = 256
WARM_UP = 0.02  # of the run
SAVE_EVERY_S = 240


@dataclass(frozen=True)
class Recipe:
    """What a checkpoint must share with the run that goes on from it."""

    hidden: int = 256
    layers: int = 4
    tokens_per_step: int = 8192
    row: int = 128
    learning_rate: float = 4e-3
    seed: int = 2026


class Run:
    """The state that a checkpoint holds: model, optimizers, step, seconds trained and tokens seen."""

    def __init__(self, recipe: Recipe, vocabulary: list[str], device: str, threads: int) -> None:
        torch.manual_seed(recipe.seed)
        self.recipe, self.vocabulary, self.device = recipe, vocabulary, torch.device(device)
        self.model = build_model(recipe, len(vocabulary))
        self.model.to(self.device)  # type: ignore[arg-type]  # its decorator confuses mypy
        self.optimizers = build_optimizers(self.model, recipe.learning_rate)
        self.step, self.seconds, self.tokens = 0, 0.0, 0
        # On a CPU each thread takes whole rows: threads that share every operation wait for the slowest at each,
        # and on a machine with other work that was 2.5 times slower.
        torch.set_num_threads(1)
        self.pool = ThreadPoolExecutor(threads)
        self.parts = 1 if self.device.type == "cuda" else 4 * threads

    def save(self, path: Path) -> None:
        state = {
            "recipe": asdict(self.recipe),
            "vocabulary": self.vocabulary,
            "model": self.model.state_dict(),
            "optimizers": [optimizer.state_dict() for optimizer in self.optimizers],
            "counters": (self.step, self.seconds, self.tokens),
        }
        torch.save(state, path.with_suffix(".new"))
        path.with_suffix(".new").replace(path)  # a kill while saving leaves the old checkpoint whole

    @classmethod
    def load(cls, path: Path, device: str, threads: int) -> "Run":
        state = torch.load(path, map_location=device)
        run = cls(Recipe(**state["recipe"]), state["vocabulary"], device, threads)
        run.model.load_state_dict(state["model"])
        for optimizer, saved in zip(run.optimizers, state["optimizers"], strict=True):
            optimizer.load_state_dict(saved)
        run.step, run.seconds, run.tokens = state["counters"]
        return run

    def set_rate(self, progress: float) -> None:
        scale = min(1.0, progress / WARM_UP) * (1 - progress)
        for optimizer in self.optimizers:
            for group in optimizer.param_groups:
                group["lr"] = self.recipe.learning_rate * scale

    def learn(self, batch: Batch) -> float:
        """One step; its rows are shared out in small parts, and so are the optimizers."""
        parts = np.array_split(np.arange(len(batch.ids)), self.parts)
        loss = sum(self.pool.map(partial(self.learn_rows, batch), parts))
        torch.nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)
        list(self.pool.map(lambda optimizer: optimizer.step(), self.optimizers))
        self.model.zero_grad()
        self.step += 1
        self.tokens += batch.ids.size
        return loss

    def learn_rows(self, batch: Batch, rows: NDArray[np.int64]) -> float:
        """Adds the gradients of some rows. The vocabulary head is computed at the masked places only."""
        first, after = (end * batch.ids.shape[1] for end in (rows[0], rows[-1] + 1))
        inside = (batch.where >= first) & (batch.where < after)
        where, targets, ids, positions, segment = (
            torch.from_numpy(array).to(self.device)
            for array in (
                batch.where[inside] - first,
                batch.targets[inside],
                batch.ids[rows],
                batch.positions[rows],
                batch.segment[rows],
            )
        )
        # Without the cache, which all threads share: its lock and Python's have been seen to wait for each other.
        with torch.autocast(self.device.type, torch.bfloat16, cache_enabled=False):
            hidden = encode(self.model, ids, positions, segment)
            logits = self.model.cls(hidden.flatten(0, 1)[where])
        loss = cross_entropy(logits.float(), targets, reduction="sum") / len(batch.where)
        loss.backward()  # type: ignore[no-untyped-call]
        return loss.item()


def build_model(recipe: Recipe, vocabulary: int) -> BertForMaskedLM:
    """No dropout: the run sees too few epochs to overfit. Token types are kept for BERT's sake, and left at zero."""
    config = BertConfig(
        vocab_size=vocabulary,
        hidden_size=recipe.hidden,
        num_hidden_layers=recipe.layers,
        num_attention_heads=recipe.hidden // 64,
        intermediate_size=4 * recipe.hidden,
        max_position_embeddings=MAX_LENGTH,
        hidden_dropout_prob=0.0,
        attention_probs_dropout_prob=0.0,
    )
    model = BertForMaskedLM(config)
    types = model.bert.embeddings.token_type_embeddings.weight
    types.data.zero_()
    types.requires_grad_(False)
    return model


def build_optimizers(model: BertForMaskedLM, rate: float) -> list[torch.optim.Optimizer]:
    """Muon for the hidden matrices, AdamW for embeddings, norms and biases."""
    named = [(name, weight) for name, weight in model.named_parameters() if weight.requires_grad]
    matrices = [weight for name, weight in named if weight.ndim == 2 and "embeddings" not in name]
    others = [weight for name, weight in named if weight.ndim < 2 or "embeddings" in name]
    each = [matrices[first : first + 6] for first in range(0, len(matrices), 6)]  # by layer, for the threads
    muons = [torch.optim.Muon(some, lr=rate, weight_decay=0.05, adjust_lr_fn="match_rms_adamw") for some in each]
    return [*muons, torch.optim.AdamW(others, lr=rate, betas=(0.9, 0.98), weight_decay=0.01)]


def compile_encoder(run: Run, corpus: Corpus) -> None:
    """Compiles for both row lengths now, in one thread: two threads that compile at once can wait for each other."""
    run.model.bert.compile(dynamic=False)
    for step in (0, 1):
        batch = corpus.batch(step, 0.0, run.recipe.tokens_per_step, run.recipe.row)
        run.learn_rows(batch, np.arange(len(batch.ids) // run.parts))
    run.model.zero_grad()


def encode(model: BertForMaskedLM, ids: Tensor, positions: Tensor, segment: Tensor) -> Tensor:
    """Hidden states of packed rows: a place attends only within its own segment."""
    together = segment[:, None, :, None] == segment[:, None, None, :]
    blocked = torch.zeros(together.shape, device=ids.device).masked_fill(~together, float("-inf"))
    output: Tensor = model.bert(ids, attention_mask=blocked, position_ids=positions).last_hidden_state
    return output


@torch.compiler.set_stance("force_eager")  # type: ignore[untyped-decorator]
def dev_score(run: Run, lines: list[str]) -> tuple[float, float, float]:
    """Top-1, top-5 and loss on held-out everyday sentences, one character hidden in each, the same in every call."""
    rng, index = np.random.default_rng(0), {token: number for number, token in enumerate(run.vocabulary)}
    losses, ranks = [], []
    for line in lines:
        ids = [index[char] for char in line if char in index]
        at = int(rng.choice([place for place, number in enumerate(ids) if HAN.match(run.vocabulary[number])]))
        answer = ids[at]
        ids[at] = MASK
        row = torch.tensor([[CLS, *ids, SEP]], device=run.device)
        with torch.no_grad():
            logits = run.model(row).logits[0, at + 1]
        losses.append(cross_entropy(logits, torch.tensor(answer, device=run.device)).item())
        ranks.append(int((logits > logits[answer]).sum()))
    return float(np.mean(np.array(ranks) < 1)), float(np.mean(np.array(ranks) < 5)), float(np.mean(losses))


def train(run: Run, corpus: Corpus, folder: Path, minutes: float) -> None:
    started, before, saved = time.monotonic(), run.seconds, time.monotonic()
    recent: list[float] = []
    while (progress := run.seconds / (60 * minutes)) < 1:
        run.set_rate(progress)
        recent.append(run.learn(corpus.batch(run.step, progress, run.recipe.tokens_per_step, run.recipe.row)))
        run.seconds = before + time.monotonic() - started
        if time.monotonic() - saved > SAVE_EVERY_S or run.seconds >= 60 * minutes:
            run.save(folder / "checkpoint.pt")
            top1, top5, loss = dev_score(run, corpus.dev)
            figures = {"minutes": run.seconds / 60, "step": run.step, "tokens": run.tokens}
            figures |= {"loss": sum(recent) / len(recent), "dev_top1": top1, "dev_top5": top5, "dev_loss": loss}
            with (folder / "log.jsonl").open("a", encoding="utf-8") as log:
                log.write(json.dumps({name: round(value, 4) for name, value in figures.items()}) + "\n")
            recent, saved = [], time.monotonic()


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--run", type=Path, required=True, help="folder of the checkpoint and the log")
    parser.add_argument("--text", type=Path, help="folder of the text files")
    parser.add_argument("--minutes", type=float, default=95, help="length of the whole run, resumptions included")
    parser.add_argument("--device", default="cpu", help="cpu or cuda")
    parser.add_argument("--threads", type=int, default=2, help="of the CPU")
    parser.add_argument("--compile", action="store_true", help="torch.compile the encoder: about a tenth faster")
    parser.add_argument("--rate", type=float, default=Recipe.learning_rate)
    parser.add_argument("--export", type=Path, help="write the checkpoint as a model folder instead of training")
    return parser.parse_args()


def main() -> None:
    arguments = parse_arguments()
    checkpoint = arguments.run / "checkpoint.pt"
    arguments.run.mkdir(parents=True, exist_ok=True)
    if checkpoint.exists():
        run = Run.load(checkpoint, arguments.device, arguments.threads)
    else:
        recipe, vocabulary = Recipe(learning_rate=arguments.rate), make_vocabulary(arguments.text)
        run = Run(recipe, vocabulary, arguments.device, arguments.threads)
    if arguments.export:
        export(run.model, run.vocabulary, arguments.export)
        return
    corpus = Corpus(arguments.text, run.vocabulary, run.recipe.seed)
    if arguments.compile:
        compile_encoder(run, corpus)
    train(run, corpus, arguments.run, arguments.minutes)


if __name__ == "__main__":
    main()
