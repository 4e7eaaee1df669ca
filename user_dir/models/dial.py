"""``--keys-per-query``: the dial for sparsity, in training by fairseq."""

from __future__ import annotations

from functools import partial
from typing import Any

import torch
from fairseq.logging import metrics
from torch import Tensor, nn

from ..attention import Alpha, AttentionInputs
from ..attention.dial import Dial, keys_per_query
from ..errors import UserError
from .multihead_attention import EntmaxMultiheadAttention


class TrainingDial(nn.Module):
    """Moves the α's of attention modules, given their keys per query and the loss that fairseq logs.

    A buffer keeps the losses in checkpoints. The hooks that count keys are registered only in training.

    Args:
        attentions: the modules of a model.
        target, max_loss: as for :class:`~user_dir.attention.dial.Dial`.

    Raises:
        UserError: as the dial does.
    """

    searchable = True  # computes nothing in a translation

    def __init__(self, attentions: list[EntmaxMultiheadAttention], target: float, max_loss: float):
        super().__init__()
        try:
            self.dial = Dial((attention.alpha for attention in attentions), target, max_loss)
        except ValueError as error:
            raise UserError(f"--keys-per-query: {error}") from None
        self.attentions = tuple(attentions)  # in a tuple: they are submodules of the model already
        self.register_buffer("losses", torch.zeros(2))  # running, dense
        self.trains = False
        self.padding: Tensor | None = None  # (B, T), true where a query of the running layer is padding

    def after_update(self, update: int) -> None:
        """Move α's if due, and prepare the next update; called once before the first one, too."""
        dial = self.dial
        if self.trains:
            dial.observe(float(metrics.get_meter("train", "loss").val), update)
            self.losses.copy_(torch.tensor([dial.loss, dial.dense_loss]))
        else:
            self.trains = True
            dial.loss, dial.dense_loss = (loss or None for loss in self.losses.tolist())
            for attention in self.attentions:
                attention.normalizer.register_forward_pre_hook(partial(_ask_for_weights, attention.alpha))
                attention.normalizer.register_forward_hook(partial(self._count, attention))
        dial.prepare(update + 1)

    def upgrade_state_dict_named(self, state_dict: dict[str, Any], name: str) -> None:
        """Called by fairseq before loading: a checkpoint without a dial knows no losses."""
        state_dict.setdefault(f"{name}.losses", self.losses)

    def _count(self, attention: EntmaxMultiheadAttention, _: nn.Module, args: tuple, result: tuple) -> None:
        if not attention.encoder_decoder_attention:  # which has the queries of the self-attention before it
            self.padding = args[0].key_padding_mask if attention.self_attention else None
        if attention.alpha.keys is not None and self.training:
            attention.alpha.keys.append(keys_per_query(result[1], self.padding))


def _ask_for_weights(alpha: Alpha, normalizer: nn.Module, arguments: tuple[AttentionInputs, str]) -> tuple:
    inputs, backend = arguments
    if alpha.keys is None or not normalizer.training:
        return arguments
    return inputs._replace(need_weights=True), "dense" if backend == "dense" else "auto"
