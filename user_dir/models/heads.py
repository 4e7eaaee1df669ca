"""What our models share: the α's of their heads, set, loaded, advanced, logged and recorded."""

from __future__ import annotations

import itertools
import json
import logging
from pathlib import Path

import torch
from fairseq.dataclass.utils import gen_parser_from_dataclass
from fairseq.logging import metrics
from torch import Tensor, distributed

from ..attention import BACKENDS, Alpha, AlphaConfig, unavailable
from ..attention.normalizers import NORMALIZERS
from ..attention.normalizers.alpha_entmax import AlphaEntmax
from ..errors import UserError
from ..files import write_text
from .dial import TrainingDial
from .layers import layers_of, output_normalizer
from .length_scaling import LengthScaling
from .multihead_attention import EntmaxMultiheadAttention
from .settings import alpha_configs

logger = logging.getLogger(__name__)


class AlphaLog:
    """Appends a line ``{"update": u, "encoder_self": [[α of layer 0, head 0, …], …], …}`` at an interval.

    A run that resumes from update u removes the lines beyond u, which it will write again; a new run keeps
    the file of an earlier one as ``FILE.1``, ``FILE.2`` and so on.
    """

    def __init__(self, path: str, interval: int):
        self.path, self.interval = Path(path), interval
        self.last: int | None = None  # update of the last line; None before the file is opened

    def __deepcopy__(self, memo) -> None:
        """Copies of the model, such as fairseq's moving average, have no log."""

    def record(self, update: int, alphas: dict[str, list[list[float]]]) -> None:
        """Write the line of ``update`` if it is due and not yet written.

        ``alphas``: for each attention type, α by layer and head.
        """
        try:
            if self.last is None:
                self.last = self._open(update)
            if update % self.interval or update <= self.last:
                return
            line = {"update": update}
            for attention_type, layers in alphas.items():
                line[attention_type] = [[round(alpha, 6) for alpha in layer] for layer in layers]
            with self.path.open("a", encoding="utf-8") as file:
                file.write(json.dumps(line) + "\n")
        except OSError as error:
            raise UserError(f"cannot write --alpha-log {self.path}: {error.strerror}") from None
        self.last = update

    def _open(self, update: int) -> int:
        """Prepare the file for training that continues from ``update``; returns the last update in it."""
        self.path.parent.mkdir(parents=True, exist_ok=True)
        if not self.path.is_file():
            return -1
        if update == 0:
            names = (self.path.with_name(f"{self.path.name}.{number}") for number in itertools.count(1))
            kept = next(path for path in names if not path.exists())
            self.path.rename(kept)
            logger.info("--alpha-log %s is of an earlier run; kept as %s", self.path, kept)
            return -1
        # A line that was cut when the run was killed has no line end.
        lines = self.path.read_text(encoding="utf-8").splitlines(keepends=True)
        lines = [line for line in lines if line.endswith("\n") and json.loads(line)["update"] <= update]
        write_text(self.path, "".join(lines))
        return json.loads(lines[-1])["update"] if lines else -1


class SparseHeads:
    """The part of a fairseq model that concerns its settings and the α of its heads."""

    alpha_log = None
    resolved = None  # the settings that it was built with
    reported = None  # the last update reported
    trains_alignment = False
    alignment = None  # a LatentAlignment; its α is set like those of context attention, unless constant

    @classmethod
    def add_args(cls, parser) -> None:
        """Add a flag for each of the model's settings; what is not given has the default of the size."""
        gen_parser_from_dataclass(parser, cls.settings(), delete_default=True)

    def attentions(self) -> dict[str, list[EntmaxMultiheadAttention]]:
        """The attention modules of each type, by layer; none for a side that the model lacks."""
        encoder, decoder = (layers_of(getattr(self, side, None)) for side in ("encoder", "decoder"))
        context = [getattr(layer, "encoder_attn", None) for layer in decoder]
        return {
            "encoder_self": [layer.self_attn for layer in encoder],
            "decoder_self": [layer.self_attn for layer in decoder],
            "decoder_context": [attention for attention in context if attention is not None],
        }

    def set_up_heads(self, args) -> None:
        """Set α, normalizer and backend of every attention, the output's α, and the α log; raises UserError.

        Args:
            args: the settings that the model was built with.
        """
        self.resolved = args
        normalizer = output_normalizer(args)
        if getattr(self, "decoder", None) is not None:
            self.decoder.output_normalizer = normalizer
        elif not normalizer.is_softmax:
            raise UserError("--output-alpha is for models with a decoder")
        configs, backend = alpha_configs(args), args.attention_backend
        if backend not in BACKENDS:
            raise UserError(f"unknown --attention-backend {backend!r}: choose from {', '.join(BACKENDS)}")
        missing = unavailable(backend, "cuda" if torch.cuda.is_available() else "cpu")
        if missing is not None:
            raise UserError(f"--attention-backend {backend}: {missing}")
        self.set_alphas(configs)
        for attention_type, attentions in self.attentions().items():
            name = configs[attention_type].attention_normalizer
            fits = backend in ("auto", "dense") or issubclass(NORMALIZERS[name], AlphaEntmax)
            if attentions and not fits:
                raise UserError(
                    f"--attention-backend {backend} does not support --attention-normalizer {name}; use auto"
                )
            for attention in attentions:
                attention.backend = backend
                _set_normalizer(attention, attention_type, name)
                if args.length_scaling:
                    attention.length_scaling = LengthScaling(attention.embed_dim, attention.num_heads)
        self.dial = None
        if args.keys_per_query is not None:
            attentions = [attention for layers in self.attentions().values() for attention in layers]
            self.dial = TrainingDial(attentions, args.keys_per_query, args.keys_per_query_max_loss)
        if args.alpha_log:
            self.alpha_log = AlphaLog(args.alpha_log, args.alpha_log_interval)

    def set_alphas(self, configs: dict[str, AlphaConfig]) -> None:
        """Set the α of every attention.

        This happens after everything else is initialised, so that models that differ only in α start from
        the same weights given the same seed.
        """
        shared: dict[str, Alpha] = {}
        for attention_type, attentions in self.attentions().items():
            config = configs[attention_type]
            group = {"model": "model", "type": attention_type}.get(config.alpha_tying)
            aligns = self.alignment is not None and not self.alignment.has_constant_alpha
            if attention_type == "decoder_context" and aligns:
                attentions = [*attentions, self.alignment]
            for attention in attentions:
                alpha = shared.get(group) or Alpha(attention.num_heads, config)
                if group is not None:
                    shared[group] = alpha
                attention.alpha = alpha

    def alphas(self) -> dict[str, list[Tensor]]:
        """The α's of each attention type and layer, detached tensors (H,)."""
        return {
            attention_type: [
                attention.alpha().detach().flatten().expand(attention.num_heads) for attention in attentions
            ]
            for attention_type, attentions in self.attentions().items()
        }

    def alpha_values(self) -> dict[str, list[list[float]]]:
        """:meth:`alphas` as numbers, without attention types that this model does not have."""
        alphas = {attention_type: layers for attention_type, layers in self.alphas().items() if layers}
        device = next(self.parameters()).device
        tensors = [alpha.to(device) for layers in alphas.values() for alpha in layers]
        numbers = iter(torch.cat(tensors).tolist())  # a single synchronisation
        return {
            attention_type: [[next(numbers) for _ in alpha] for alpha in layers]
            for attention_type, layers in alphas.items()
        }

    def load_state_dict(self, state_dict, strict=True, model_cfg=None, args=None):
        """See fairseq; a checkpoint of another model ends the command with an error message."""
        try:
            return super().load_state_dict(state_dict, strict=strict, model_cfg=model_cfg, args=args)
        except RuntimeError as error:
            reason = " ".join(str(error).split(":", 1)[-1].split())
            raise SystemExit(
                "error: the checkpoint does not fit this model: it was trained with different settings; "
                f"give them here too. {reason[:300]}"
            ) from None

    def after_update(self, num_updates: int) -> None:
        """Advance schedules and record α; called before the first update and after each update.

        ``guards/training.py`` calls it in a training.
        """
        if num_updates == self.reported:
            return
        self.reported = num_updates
        self.set_num_updates(num_updates)
        if self.dial is not None:
            self.dial.after_update(num_updates)
        if self.alignment is not None:
            log_alignment(self.alignment)
        by_type = self.attentions()
        for attention in by_type["decoder_context"]:
            attention.discards_weights = not self.trains_alignment
        moving = [
            name
            for name, attentions in by_type.items()
            if any(attention.alpha.constant is None for attention in attentions)
        ]
        first_worker = not distributed.is_initialized() or distributed.get_rank() == 0
        recording = self.alpha_log is not None and first_worker
        if not moving and not recording:
            return
        values = self.alpha_values()
        for name in moving:
            log_summary(name, values[name])
        if recording:
            self.alpha_log.record(num_updates, values)


def _set_normalizer(attention: EntmaxMultiheadAttention, attention_type: str, name: str) -> None:
    """Build the normalizer, whose parameters are drawn after all others, as those of α."""
    kind, channels = NORMALIZERS[name], attention.embed_dim
    try:
        attention.normalizer = kind.build(attention_type, attention.num_heads, channels)
    except ValueError as error:
        raise UserError(f"--attention-normalizer {name}: {error}") from None
    attention.gated_norm = kind.output_norm(channels)


def log_summary(attention_type: str, layers: list[list[float]]) -> None:
    """Log mean, minimum and maximum α of an attention type to fairseq's log line and TensorBoard."""
    values = [alpha for layer in layers for alpha in layer]
    summary = {"mean": sum(values) / len(values), "min": min(values), "max": max(values)}
    for name, value in summary.items():
        # Weight 0: the latest value, not a mean over the log interval.
        metrics.log_scalar(f"alpha_{attention_type}_{name}", value, weight=0, priority=400, round=3)


def log_alignment(alignment) -> None:
    """Log a latent alignment: its α, and mean positions per word and certified share of the log interval."""
    scalars = {
        "positions": (alignment.support, 1),
        "certified": (alignment.certified, 1),
        "alpha": (alignment.alpha(), 0),
    }
    for name, (value, weight) in scalars.items():
        if value is not None:  # before the first update
            metrics.log_scalar(f"alignment_{name}", value.item(), weight, priority=410, round=3)
