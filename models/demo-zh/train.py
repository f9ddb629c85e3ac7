"""Trains the demo model from scratch: masked characters, packed rows, on a CPU or a CUDA device.

    python models/demo-zh/train.py --text FOLDER --run RUN --minutes 95 [--device cuda] [--compile]
    python models/demo-zh/train.py --run RUN --export models/demo-zh

FOLDER holds one UTF-8 text file a source, one line a passage; the model card lists the sources and their licences,
`mix.SHARES` names the files. RUN is a folder for the log and the checkpoint, saved every few minutes: start the same
command again and it goes on from there. The schedule follows the clock, not the step count, so that the learning rate
reaches zero when the minutes are over, however busy the machine is.

Needs torch >= 2.9 (its Muon) and transformers. The mixing is in mix.py, the ONNX and OpenVINO files in export.py.
"""

import argparse
import json
import time
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
import torch
from mix import CLS, MASK, SEP, SPECIALS, Batch, Corpus, make_vocabulary
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

    def __init__(self, recipe: Recipe, vocabulary: list[str], device: str) -> None:
        torch.manual_seed(recipe.seed)
        self.recipe, self.vocabulary, self.device = recipe, vocabulary, torch.device(device)
        self.model = build_model(recipe, len(vocabulary)).to(self.device)
        self.optimizers = build_optimizers(self.model, recipe.learning_rate)
        self.step, self.seconds, self.tokens = 0, 0.0, 0

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
    def load(cls, path: Path, device: str) -> "Run":
        state = torch.load(path, map_location=device)
        run = cls(Recipe(**state["recipe"]), state["vocabulary"], device)
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
        """One step; the vocabulary head is computed at the masked places only, a fifth of the work it would be."""
        ids, positions, segment, where, targets = (
            torch.from_numpy(array).to(self.device)
            for array in (batch.ids, batch.positions, batch.segment, batch.where, batch.targets)
        )
        with torch.autocast(self.device.type, torch.bfloat16):
            hidden = encode(self.model, ids, positions, segment)
            logits = self.model.cls(hidden.flatten(0, 1)[where])
        loss = cross_entropy(logits.float(), targets)
        loss.backward()  # type: ignore[no-untyped-call]
        torch.nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)
        for optimizer in self.optimizers:
            optimizer.step()
            optimizer.zero_grad()
        self.step += 1
        self.tokens += ids.numel()
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
    """Muon for the hidden matrices, which learns more from each token than AdamW here, and AdamW for the rest."""
    named = [(name, weight) for name, weight in model.named_parameters() if weight.requires_grad]
    matrices = [weight for name, weight in named if weight.ndim == 2 and "embeddings" not in name]
    others = [weight for name, weight in named if weight.ndim < 2 or "embeddings" in name]
    muon = torch.optim.Muon(matrices, lr=rate, weight_decay=0.05, adjust_lr_fn="match_rms_adamw")
    return [muon, torch.optim.AdamW(others, lr=rate, betas=(0.9, 0.98), weight_decay=0.01)]


def encode(model: BertForMaskedLM, ids: Tensor, positions: Tensor, segment: Tensor) -> Tensor:
    """Hidden states of packed rows: a place attends only within its own segment."""
    together = segment[:, None, :, None] == segment[:, None, None, :]
    blocked = torch.zeros(together.shape, device=ids.device).masked_fill(~together, float("-inf"))
    output: Tensor = model.bert(ids, attention_mask=blocked, position_ids=positions).last_hidden_state
    return output


@torch.compiler.set_stance("force_eager")  # type: ignore[untyped-decorator]
def dev_score(run: Run, lines: list[str]) -> tuple[float, float, float]:
    """Top-1, top-5 and loss on held-out everyday sentences, one character hidden in each, always the same one."""
    rng, index = np.random.default_rng(0), {token: number for number, token in enumerate(run.vocabulary)}
    losses, ranks = [], []
    for line in lines:
        ids = [index[char] for char in line if char in index]
        at = int(rng.integers(len(ids)))
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
            figures = {"minutes": run.seconds / 60, "step": run.step, "tokens": run.tokens, "loss": np.mean(recent)}
            figures |= {"dev_top1": top1, "dev_top5": top5, "dev_loss": loss}
            with (folder / "log.jsonl").open("a", encoding="utf-8") as log:
                log.write(json.dumps({name: round(float(value), 4) for name, value in figures.items()}) + "\n")
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
    torch.set_num_threads(arguments.threads)
    checkpoint = arguments.run / "checkpoint.pt"
    arguments.run.mkdir(parents=True, exist_ok=True)
    vocabulary = make_vocabulary(arguments.text)
    fresh = not checkpoint.exists()
    run = Run(Recipe(learning_rate=arguments.rate), vocabulary, arguments.device) if fresh else Run.load(checkpoint, arguments.device)
    if arguments.compile:
        run.model.bert.compile(dynamic=False)
    train(run, Corpus(arguments.text, run.vocabulary, run.recipe.seed), arguments.run, arguments.minutes)


if __name__ == "__main__":
    main()
