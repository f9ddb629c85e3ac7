"""A transformers model whose vocabulary head runs at the mask positions only: what is exported, and what the GPU runs.

It loads weights and refuses a head that is missing; it knows no batches and no graphs.
"""

import inspect
from pathlib import Path
from typing import TYPE_CHECKING, Any

from common.checkpoint import Checkpoint, fetch
from common.errors import StartupError

if TYPE_CHECKING:
    from torch import Tensor, nn

    from worker.last_layer import LastLayer

_SAFETENSORS = ("model.safetensors", "model.safetensors.index.json", "model-*.safetensors")
_PICKLED = ("pytorch_model.bin", "pytorch_model.bin.index.json", "pytorch_model-*.bin")


def fetch_weights(checkpoint: Checkpoint) -> list[Path]:
    """The files with the weights: .safetensors if there are any, else .bin. Raises StartupError if there are neither."""
    for patterns in (_SAFETENSORS, _PICKLED):
        folder = fetch(checkpoint.name, checkpoint.revision, patterns)
        found = sorted(file for pattern in patterns for file in folder.glob(pattern))
        if any(file.suffix != ".json" for file in found):
            return found
    raise StartupError(f"{checkpoint.name} holds no weights: neither model.safetensors nor pytorch_model.bin")


def is_on_hub(checkpoint: Checkpoint) -> bool:
    """Whether asking for a file of the model may fetch it over the network, which takes its time."""
    return not Path(checkpoint.name).expanduser().is_dir()


class MaskedHead:
    """A transformers model whose hidden states are cut down to the mask positions before its head sees them.

    A hook on the encoder replaces [batch, length, hidden] by [1, masks, hidden]; a masked-LM head works on each position
    by itself, so what is left of forward() applies it to the masks alone. That holds for any architecture.
    """

    def __init__(self, model: "nn.Module", takes_segments: bool) -> None:
        self.model = model
        self.takes_segments = takes_segments
        self._positions: tuple[Tensor, Tensor] | None = None
        self._columns: Tensor | None = None
        self._last_layer: LastLayer | None = None
        encoder: nn.Module = model.base_model  # type: ignore[assignment]
        encoder.register_forward_hook(self._cut)

    @classmethod
    def load(cls, checkpoint: Checkpoint, attention: str = "eager", dtype: str = "float32") -> "MaskedHead":
        """Reads the weights with transformers. Raises StartupError in one line: no weights, no masked-LM head, no torch."""
        try:
            from transformers import AutoModelForMaskedLM
        except ImportError as error:
            raise StartupError(f"torch models need {error.name}: pip install 'fillmask[export]'") from None
        weights = fetch_weights(checkpoint)
        try:
            model, info = AutoModelForMaskedLM.from_pretrained(
                weights[0].parent,
                output_loading_info=True,
                trust_remote_code=False,
                use_safetensors=any(file.suffix == ".safetensors" for file in weights),
                attn_implementation=attention,
                dtype=dtype,
            )
        except Exception as error:  # a foreign library's edge: whatever it says, it is about this model's files
            raise StartupError(f"{checkpoint.name} cannot be loaded: {_first_line(error)}") from error
        _refuse_missing(info["missing_keys"], checkpoint)
        segments = getattr(model.config, "type_vocab_size", 0) or 0
        named = "token_type_ids" in inspect.signature(model.forward).parameters
        return cls(model.eval(), named and segments > 1)

    def _cut(self, _module: "nn.Module", _inputs: object, output: Any) -> Any:
        if self._positions is not None:
            output["last_hidden_state"] = output[0][self._positions].unsqueeze(0)
        if self._columns is not None and self._last_layer is None:
            output["last_hidden_state"] = output[0].take_along_dim(self._columns[:, None, None], dim=1)
        return output

    def narrow_last_layer(self) -> None:
        """From now on `at_one_mask_a_row` leaves out what nobody looks at, if the architecture is known for it."""
        from worker.last_layer import stand_in_for_last

        self._last_layer = stand_in_for_last(self.model)

    def at_masks(self, inputs: "dict[str, Tensor]", mask_rows: "Tensor", mask_columns: "Tensor") -> "Tensor":
        """float32[masks, vocabulary]"""
        self._positions = (mask_rows, mask_columns)
        try:
            logits: Tensor = self.model(**inputs).logits
        finally:
            self._positions = None
        return logits.squeeze(0)

    def at_one_mask_a_row(self, inputs: "dict[str, Tensor]", mask_columns: "Tensor") -> "Tensor":
        """[batch, vocabulary] in the model's precision: the logits at column mask_columns[i] of each row i."""
        self._columns = mask_columns
        if self._last_layer is not None:
            self._last_layer.columns = mask_columns
        try:
            logits: Tensor = self.model(**inputs).logits
        finally:
            self._columns = None
            if self._last_layer is not None:
                self._last_layer.columns = None
        return logits.squeeze(1)

    def reference(self, token_ids: list[int]) -> Any:
        """float32[length, vocabulary] of one row without padding, from the model as it came."""
        import torch

        with torch.inference_mode():
            row = torch.tensor([token_ids])
            return self.model(input_ids=row, attention_mask=torch.ones_like(row)).logits[0].numpy()


def _refuse_missing(missing: Any, checkpoint: Checkpoint) -> None:
    """transformers has already taken tied tensors and computed buffers off this list; what is left would be random."""
    lost = sorted(name for name in missing if not name.endswith("position_ids"))
    if lost:
        shown = ", ".join(lost[:8]) + (f" and {len(lost) - 8} more" if len(lost) > 8 else "")
        raise StartupError(f"{checkpoint.name} lacks trained weights of its masked-LM head: {shown}")


def _first_line(error: Exception) -> str:
    lines = str(error).strip().splitlines() or [""]
    return f"{type(error).__name__}: {lines[0][:300]}"
