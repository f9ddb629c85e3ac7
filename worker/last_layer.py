"""A BERT-like model's last layer, computed at one position a row: no other position of it is ever looked at.

What is left out is the query, the attention's output and the feed-forward part of all other positions: ten twelfths of the
layer. Keys and values are still needed everywhere. It knows the layers of the architectures in LAYERS and touches no other.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn.functional import scaled_dot_product_attention


class _Parts(NamedTuple):
    """What the layer of one architecture calls its own: the three projections, and all that follows the attention."""

    query: nn.Module
    key: nn.Module
    value: nn.Module
    rest: Callable[[Tensor, Tensor], Tensor]
    """(attended, what went in), both [batch, 1, hidden] -> what comes out, of the same shape"""


def _bert(layer: Any) -> _Parts:
    attention = layer.attention.self

    def rest(attended: Tensor, given: Tensor) -> Tensor:
        between = layer.attention.output(attended, given)
        out: Tensor = layer.output(layer.intermediate(between), between)
        return out

    return _Parts(attention.query, attention.key, attention.value, rest)


def _distilbert(layer: Any) -> _Parts:
    attention = layer.attention

    def rest(attended: Tensor, given: Tensor) -> Tensor:
        between = layer.sa_layer_norm(attention.out_lin(attended) + given)
        out: Tensor = layer.output_layer_norm(layer.ffn(between) + between)
        return out

    return _Parts(attention.q_lin, attention.k_lin, attention.v_lin, rest)


LAYERS: dict[str, tuple[str, Callable[[Any], _Parts]]] = {
    "bert": ("encoder.layer", _bert),
    "camembert": ("encoder.layer", _bert),
    "distilbert": ("transformer.layer", _distilbert),
    "electra": ("encoder.layer", _bert),
    "roberta": ("encoder.layer", _bert),
    "xlm-roberta": ("encoder.layer", _bert),
}
"""A config's model_type -> where the base model keeps its layers, and what is in one. ALBERT's layers are all the same one,
and ModernBERT's turn queries by their position: both would need more than this."""


class LastLayer(nn.Module):
    """Stands in for the last layer: as it was where `columns` is None, else [batch, length, hidden] -> [batch, 1, hidden]."""

    def __init__(self, layer: nn.Module, parts: _Parts, heads: int) -> None:
        super().__init__()
        self.layer = layer
        self.columns: Tensor | None = None
        self._parts = parts
        self._heads = heads

    def forward(self, hidden: Tensor, attention_mask: Tensor | None = None, *more: Any, **options: Any) -> Any:
        if self.columns is None:
            return self.layer(hidden, attention_mask, *more, **options)
        rows = torch.arange(len(hidden), device=hidden.device)
        given = hidden[rows, self.columns].unsqueeze(1)
        mask = attention_mask
        if mask is not None and mask.shape[-2] != 1:  # [batch, 1, length, length]: the line of the one query
            mask = mask[rows, :, self.columns].unsqueeze(2)
        query, key, value = self._parts[:3]
        attended = scaled_dot_product_attention(
            self._in_heads(query(given)), self._in_heads(key(hidden)), self._in_heads(value(hidden)), mask
        )
        return self._parts.rest(attended.transpose(1, 2).reshape(given.shape), given)

    def _in_heads(self, projected: Tensor) -> Tensor:
        """[batch, positions, hidden] -> [batch, heads, positions, size of a head]"""
        return projected.view(*projected.shape[:2], self._heads, -1).transpose(1, 2)


def stand_in_for_last(model: Any) -> LastLayer | None:
    """Puts a LastLayer in the place of the model's last layer; None, and no change, for an architecture it does not know."""
    known = LAYERS.get(model.config.model_type)
    if known is None or getattr(model.config, "is_decoder", False):
        return None
    where, parts_of = known
    layers: Any = model.base_model.get_submodule(where)
    stand_in = LastLayer(layers[-1], parts_of(layers[-1]), model.config.num_attention_heads)
    layers[-1] = stand_in
    return stand_in
