"""What `make bench` compares with: transformers and torch as everybody would write it. Nothing of this project is used.

    python -m loadtest.bench_naive MODEL --one-by-one   transformers' fill-mask pipeline, one text after the other
    python -m loadtest.bench_naive MODEL                torch, a padded batch at a time, logits at every position

It takes and gives the JSON lines that deploy/bench.py describes.
"""

import argparse
import json
import os
import resource
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

TOP_K = 5
Run = Callable[[list[str]], Any]


def texts_of(tokenizer: Any, count: int, length: int) -> list[str]:
    """Of so many tokens each, special ones included, if the vocabulary has single Chinese characters."""
    words = [word for word in tokenizer.get_vocab() if len(word) == 1 and "\u4e00" <= word <= "\u9fff"]
    made = []
    for row in range(count):
        characters = [words[(row * 31 + place * 7) % len(words)] for place in range(length - 2)]
        characters[row % len(characters)] = tokenizer.mask_token
        made.append("".join(characters))
    return made


def one_by_one(model: str) -> tuple[Any, Run]:
    import transformers

    fill = transformers.pipeline("fill-mask", model=model, device="cpu")
    return fill.tokenizer, lambda texts: [fill(text, top_k=TOP_K) for text in texts]


def all_logits(model: str) -> tuple[Any, Run]:
    import torch
    from transformers import AutoModelForMaskedLM, AutoTokenizer

    load: Any = AutoModelForMaskedLM.from_pretrained
    network, tokenizer = load(model).eval(), AutoTokenizer.from_pretrained(model)

    def run(texts: list[str]) -> Any:
        inputs = tokenizer(texts, return_tensors="pt", padding=True)
        with torch.inference_mode():
            logits = network(**inputs).logits
            return logits[inputs["input_ids"] == tokenizer.mask_token_id].softmax(-1).topk(TOP_K)

    return tokenizer, run


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model")
    parser.add_argument("--one-by-one", action="store_true")
    asked = parser.parse_args()
    os.environ["TOKENIZERS_PARALLELISM"] = "false"
    started_s = time.perf_counter()
    tokenizer, run = (one_by_one if asked.one_by_one else all_logits)(asked.model)
    name = "pipeline" if asked.one_by_one else "torch"
    print(json.dumps({"engine": name, "load_s": time.perf_counter() - started_s, "warm_up_s": 0.0}), flush=True)
    for line in sys.stdin:
        print(json.dumps(_answer(json.loads(line), tokenizer, run)), flush=True)
    return 0


def _answer(wanted: dict[str, Any], tokenizer: Any, run: Run) -> dict[str, Any]:
    if wanted["do"] == "memory":
        resident = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1]) * resource.getpagesize()
        return {"rss_bytes": resident, "peak_bytes": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss << 10}
    texts = texts_of(tokenizer, wanted["count"], wanted["length"])
    run(texts[:1])
    answered, started_s = 0, time.perf_counter()
    while answered == 0 or time.perf_counter() - started_s < wanted["seconds"]:
        run(texts)
        answered += len(texts)
    return {"texts": answered, "seconds": time.perf_counter() - started_s}


if __name__ == "__main__":
    sys.exit(main())
