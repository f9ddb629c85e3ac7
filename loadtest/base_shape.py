"""A checkpoint of bert-base's shape with random weights and the demo model's tokenizer: for speed, where answers do not count.

python -m loadtest.base_shape FOLDER
"""

import shutil
import sys
from pathlib import Path

from loadtest.stack import DEMO

VOCABULARY = 21_128
"""bert-base-chinese's; the tokenizer uses the first few thousand of it."""


def build(folder: Path) -> Path:
    """Writes it unless it is there; returns the folder. Needs transformers."""
    if (folder / "model.safetensors").is_file():
        return folder
    import torch
    from transformers import BertConfig, BertForMaskedLM

    torch.manual_seed(0)
    folder.mkdir(parents=True, exist_ok=True)
    for file in ("tokenizer.json", "tokenizer_config.json", "vocab.txt"):
        shutil.copy(DEMO / file, folder)
    BertForMaskedLM(BertConfig(vocab_size=VOCABULARY, max_position_embeddings=512)).save_pretrained(folder)
    return folder


if __name__ == "__main__":
    print(build(Path(sys.argv[1])))
