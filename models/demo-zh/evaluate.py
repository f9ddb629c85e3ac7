"""Scores the demo model on cloze lists, as the service would run it: tokenizer.json and model.onnx, without torch.

    python models/demo-zh/evaluate.py LIST.tsv [LIST.tsv ...] [--model FOLDER] [--wrong]
    python models/demo-zh/evaluate.py                # the nine sentences that the model must know

A list has a header and the columns `masked` (a sentence with one [MASK]) and `answer` (one character).
"""

import argparse
import csv
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import onnxruntime
from numpy.typing import NDArray
from tokenizers import Tokenizer

NINE = (
    ("画龙点[MASK]。", "睛"),
    ("守株待[MASK]。", "兔"),
    ("床前明月光，疑是地[MASK]霜。", "上"),
    ("春眠不觉晓，处处闻啼[MASK]。", "鸟"),
    ("春风又绿江南[MASK]，明月何时照我还。", "岸"),
    ("北京是中国的[MASK]都。", "首"),
    ("他昨天去图[MASK]馆看书。", "书"),
    ("他因为迟到被老[MASK]批评了。", "师"),
    ("今天天[MASK]真好。", "气"),
)


@dataclass(frozen=True)
class Result:
    masked: str
    answer: str
    rank: int  # of the answer; 0 is first
    best: list[str]


class Model:
    def __init__(self, folder: Path) -> None:
        self._tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
        self._mask = self._tokenizer.encode("[MASK]", add_special_tokens=False).ids[0]
        self._session = onnxruntime.InferenceSession(folder / "model.onnx", providers=["CPUExecutionProvider"])
        self._inputs = {entry.name for entry in self._session.get_inputs()}

    def logits(self, text: str) -> NDArray[np.float32]:
        """Of the first [MASK] of `text`: [vocabulary]."""
        encoding = self._tokenizer.encode(text)
        feeds = {
            "input_ids": np.array([encoding.ids]),
            "attention_mask": np.array([encoding.attention_mask]),
            "token_type_ids": np.array([encoding.type_ids]),
            "mask_rows": np.array([0]),
            "mask_columns": np.array([encoding.ids.index(self._mask)]),
        }
        (logits,) = self._session.run(["logits"], {name: feeds[name] for name in self._inputs})
        return np.asarray(logits[0])

    def answer(self, masked: str, answer: str) -> Result:
        logits, expected = self.logits(masked), self._tokenizer.token_to_id(answer)
        best = [self._tokenizer.id_to_token(int(index)) or "" for index in np.argsort(-logits)[:5]]
        # An answer outside the vocabulary can never be right.
        rank = len(logits) if expected is None else int((logits > logits[expected]).sum())
        return Result(masked, answer, rank, best)


def read_list(path: Path) -> list[tuple[str, str]]:
    with path.open(encoding="utf-8", newline="") as file:
        return [(row["masked"], row["answer"]) for row in csv.DictReader(file, delimiter="\t", quoting=csv.QUOTE_NONE)]


def report(name: str, results: list[Result], shown: Iterable[Result]) -> None:
    top1, top5 = (sum(result.rank < size for result in results) for size in (1, 5))
    count = len(results)
    print(f"{name}: n {count}  top-1 {top1 / count:.1%} ({top1})  top-5 {top5 / count:.1%} ({top5})")
    for result in shown:
        print(f"  {result.masked}  answer {result.answer}, rank {result.rank + 1}, best {' '.join(result.best)}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("lists", type=Path, nargs="*")
    parser.add_argument("--model", type=Path, default=Path(__file__).parent)
    parser.add_argument("--wrong", action="store_true", help="print the misses")
    arguments = parser.parse_args()
    model = Model(arguments.model)
    for path in arguments.lists:
        results = [model.answer(*pair) for pair in read_list(path)]
        report(path.name, results, (result for result in results if result.rank and arguments.wrong))
    if not arguments.lists:
        nine = [model.answer(*pair) for pair in NINE]
        report("nine sentences", nine, nine)


if __name__ == "__main__":
    main()
