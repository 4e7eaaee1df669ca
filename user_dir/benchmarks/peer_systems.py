"""The translation systems to compare, trained as by fairseq-train."""

from __future__ import annotations

import itertools
import logging
import warnings
from argparse import Namespace
from dataclasses import dataclass
from pathlib import Path

import torch
from fairseq import options, tasks, utils
from fairseq.dataclass.utils import convert_namespace_to_omegaconf
from fairseq.models import ARCH_CONFIG_REGISTRY
from fairseq.trainer import Trainer
from torch import Tensor

from ..attention.dense import attention_scores, weighted_values
from ..attention.inputs import AttentionInputs
from ..attention.normalizers import NORMALIZERS, Normalizer
from ..checkpoints import load_checkpoint
from ..corpora import Corpus
from ..errors import UserError
from ..translation.direction import translation_direction

SIZES = {
    "tiny": "adaptively_sparse_transformer_tiny",
    "iwslt": "adaptively_sparse_transformer_iwslt_de_en",
    "base": "adaptively_sparse_transformer",
}
PRECISIONS = ("fp32", "fp16", "bf16")

# The settings of configs/multi30k-de-en.
SETTINGS = "--task translation --share-all-embeddings --dropout 0.1 "
SETTINGS += "--encoder-normalize-before --decoder-normalize-before "
SETTINGS += "--criterion label_smoothed_cross_entropy --label-smoothing 0.1 "
SETTINGS += "--optimizer adam --adam-eps 1e-9 --lr 0.003 --lr-scheduler inverse_sqrt "
SETTINGS += "--warmup-updates 1000 --warmup-init-lr 1e-7 --required-batch-size-multiple 1 --num-workers 0"
ADAM_BETAS = "(0.9, 0.98)"


@dataclass(frozen=True)
class Variant:
    """A model to compare: fairseq's, or ours with these flags, perhaps with α-entmax by bisection."""

    name: str
    flags: tuple[str, ...] = ()
    stock: bool = False
    bisection: bool = False


STOCK = Variant("stock transformer", stock=True)
_OURS = {
    name: Variant(f"ours, {normalizer.title}", ("--attention-normalizer", name))
    for name, normalizer in NORMALIZERS.items()
}
SOFTMAX, ALPHA_ENTMAX = _OURS["softmax"], _OURS.pop("entmax")
SYSTEMS = (
    STOCK,
    *_OURS.values(),
    Variant("ours, α-entmax, queries scaled by length", ("--length-scaling",)),
    ALPHA_ENTMAX,
    Variant("α-entmax by entmax_bisect", bisection=True),
)

# In the names of parameters that fairseq's model does not have.
OWN_PARAMETERS = (".alpha.", ".normalizer.", ".gated_norm.", ".length_scaling.")


def is_own(parameter: str) -> bool:
    """Whether fairseq's model does not have a parameter of this name."""
    return any(part in parameter for part in OWN_PARAMETERS)


class Bisection(Normalizer):
    """α-entmax by the ``entmax`` package's ``entmax_bisect``."""

    def forward(self, inputs: AttentionInputs, backend: str) -> tuple[Tensor, Tensor | None]:
        """See the base class."""
        from entmax import entmax_bisect

        masks = inputs.key_padding_mask, inputs.attn_mask, inputs.causal
        scores = attention_scores(inputs.query, inputs.key, *masks)
        # In half precision it would also round α; fairseq's softmax computes in float32 as well.
        weights = entmax_bisect(scores.float(), inputs.alpha).type_as(scores)
        return weighted_values(weights, inputs.value, inputs)


class Workshop:
    """Builds the systems of one size and precision for one corpus, all with the same parameters.

    ``scratch`` is a folder for files that fairseq might write. The parameters are those of ``checkpoint``;
    None for the stock model's initial ones.

    Raises:
        UserError: the checkpoint does not match the corpus.
    """

    def __init__(
        self,
        corpus: Corpus,
        size: str,
        precision: str,
        max_tokens: int,
        seed: int,
        device: torch.device,
        scratch: Path,
        checkpoint: Path | None = None,
    ):
        self.corpus, self.size, self.seed, self.checkpoint = corpus, size, seed, checkpoint
        source, target = corpus.languages
        self.parameters = None
        if checkpoint is not None:
            state = load_checkpoint(checkpoint)
            source, target = translation_direction(state, checkpoint, corpus)
            self.parameters = state["model"]
        self.flags = [str(corpus.bin), "--source-lang", source, "--target-lang", target, *SETTINGS.split()]
        self.flags += ["--adam-betas", ADAM_BETAS, "--max-tokens", str(max_tokens), "--seed", str(seed)]
        self.flags += ["--save-dir", str(scratch)]
        self.flags += [] if precision == "fp32" else ["--" + precision]
        self.flags += ["--cpu"] if device.type == "cpu" else []
        for logger in ("fairseq", "hydra"):
            logging.getLogger(logger).setLevel(logging.ERROR)
        self.task = tasks.setup_task(self._config(STOCK).task)

    def trainer(self, system: Variant) -> Trainer:
        """fairseq's trainer for a system."""
        cfg = self._config(system)
        utils.set_torch_seed(self.seed)
        model = self.task.build_model(cfg.model)
        if system.bisection:
            for attention in itertools.chain(*model.attentions().values()):
                attention.normalizer = Bisection()
        if self.parameters is None:
            self.parameters = {name: value.clone() for name, value in model.state_dict().items()}
        own = model.state_dict()
        added = {name: value for name, value in own.items() if is_own(name)}
        rest = {name: value for name, value in self.parameters.items() if name in own or not is_own(name)}
        try:
            model.load_state_dict({**added, **rest})
        except (RuntimeError, SystemExit):
            raise UserError(
                f"{self.checkpoint} does not fit the size {self.size} with the settings of "
                "configs/multi30k-de-en; use the --size it was trained with, one of " + ", ".join(SIZES)
            ) from None
        return Trainer(cfg, self.task, model, self.task.build_criterion(cfg.criterion))

    def arguments(self, system: Variant) -> list[str]:
        """What to tell ``fairseq-train``."""
        if system.stock:
            return [*self.flags, "--arch", "transformer", *_sizes(SIZES[self.size]), *system.flags]
        return [*self.flags, "--arch", SIZES[self.size], *system.flags]

    def _config(self, system: Variant):
        parser = options.get_training_parser()
        args = options.parse_args_and_arch(parser, input_args=self.arguments(system))
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # about hydra versions
            return convert_namespace_to_omegaconf(args)


def _sizes(architecture: str) -> list[str]:
    """The flags that give fairseq's ``transformer`` the size of one of our architectures."""
    args = Namespace()
    ARCH_CONFIG_REGISTRY[architecture](args)
    flags = []
    for side in ("encoder", "decoder"):
        for name in ("embed_dim", "ffn_embed_dim", "layers", "attention_heads"):
            flags += [f"--{side}-{name.replace('_', '-')}", str(getattr(args, f"{side}_{name}"))]
    return flags
