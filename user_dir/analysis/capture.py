"""A model and the split that it reads: load them, capture the attention of its heads, mask heads."""

from __future__ import annotations

import copy
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np
import torch
from fairseq import utils
from fairseq.data import LanguagePairDataset
from fairseq.models import FairseqLanguageModel
from torch import Tensor, nn
from tqdm import tqdm

from .. import tasks  # noqa: F401  installs the guards
from ..attention.types import ATTENTION_TYPES
from ..checkpoints import (
    AVERAGED,
    load_checkpoint,
    model_name,
    model_settings,
    num_updates,
    save_checkpoint,
)
from ..corpora import Corpus
from ..entmax import entmax_loss
from ..errors import UserError
from ..models.settings import family
from ..models.transformer import from_stock
from ..translation import loading
from ..translation.loading import translation_direction
from .maps import Head
from .words import Pieces


def load_model(
    checkpoint: str | Path, corpus: Corpus, *, language: str | None = None, cpu: bool = False, state=None
):
    """Load the model of a checkpoint, in evaluation mode, and its task over ``corpus``.

    The model is on a GPU if there is one, unless ``cpu``. A stock ``transformer`` is converted to our model
    with α = 1, which is softmax. A language model is analysed on one side of the corpus: ``language``, or its
    second language. ``state`` is the checkpoint, if it has been read already. Raises UserError if the
    checkpoint is missing, its model is not supported, or it does not match the corpus.
    """
    state = state or load_checkpoint(checkpoint)
    name = model_name(state)
    model = family(name)
    if model == "adaptively_sparse_transformer_lm":
        return loading.load_language_model(Path(checkpoint), corpus, language, cpu=cpu)
    direction = translation_direction(state, Path(checkpoint), corpus)
    if model == "transformer":
        with tempfile.TemporaryDirectory() as folder:
            converted = Path(folder) / "softmax.pt"
            state["cfg"]["model"] = from_stock(model_settings(state))
            save_checkpoint(state, converted)
            return loading.load_model(converted, corpus, direction, cpu=cpu)
    if model not in ("adaptively_sparse_transformer", "adaptively_sparse_post_editor"):
        raise UserError(f"{checkpoint} is of a {name}, whose heads cannot be analysed")
    return loading.load_model(Path(checkpoint), corpus, direction, cpu=cpu)


@dataclass(frozen=True)
class Split:
    """A loaded model and the split of a corpus to run it on: the input of every analysis."""

    checkpoint: Path  # of the model
    corpus: Corpus  # prepared
    name: str  # public name of the split: train, valid or a test set
    subset: str  # fairseq's name of the split
    model: object  # from load_model
    task: object  # the model's
    sentences: int | None = None  # only the first N of the split; None for all
    max_tokens: int = 4096  # of one side of a batch

    @property
    def direction(self) -> tuple[str, str]:
        """Source and target language."""
        return self.task.cfg.source_lang, self.task.cfg.target_lang

    @property
    def padding(self) -> int:
        """The padding symbol."""
        return self.task.source_dictionary.pad()

    @property
    def facts(self) -> dict:
        """The provenance that result files record.

        ``update`` is None if it is not recorded; ``averaged``, a list of updates, is None without averaging.
        """
        state = load_checkpoint(self.checkpoint)
        return {
            "checkpoint": str(self.checkpoint),
            "update": num_updates(state) or None,
            "averaged": state.get(AVERAGED),
            "corpus": self.corpus.name,
            "subset": self.name,
            "source_lang": self.direction[0],
            "target_lang": self.direction[1],
        }

    def samples(self, in_order: bool = False) -> Iterator[dict]:
        """The batches in fairseq's form, on the model's device, with a progress bar.

        ``in_order``: keep corpus order; by default, sentences are sorted by length, to need less padding.

        Raises:
            UserError: a sentence is longer than the model or ``max_tokens`` allows.
        """
        dataset = loading.load_split(self.task, self.subset)
        lengths = loading.check_lengths(dataset, self.subset, self.max_tokens, self.model, self.sentences)
        order = np.arange(len(lengths)) if in_order else np.argsort(lengths, kind="stable")
        bar = {"total": len(order), "desc": self.subset, "unit": "sentence", "disable": None}
        with tqdm(**bar) as progress:
            for members in dataset.batch_by_size(order, max_tokens=self.max_tokens):
                yield on_device(dataset.collater([dataset[i] for i in members]), self.model)
                progress.update(len(members))

    def pieces(self) -> tuple[Pieces, Pieces]:
        """The pieces of the source and target language."""
        source, target = self.direction
        return Pieces(self.task.source_dictionary, source), Pieces(self.task.target_dictionary, target)


def open_split(
    checkpoint: Path,
    corpus: Corpus | str | None,
    name: str = "valid",
    *,
    data: Path | None = None,
    sentences: int | None = None,
    max_tokens: int = 4096,
    language: str | None = None,
    cpu: bool = False,
) -> Split:
    """Load a model (:func:`load_model`) and a split of a prepared corpus, by its public or fairseq's name.

    ``corpus`` may be a name, or None, as for :func:`~..translation.loading.corpus_of`. Raises UserError if
    corpus, split or checkpoint do not exist or do not match.
    """
    state = load_checkpoint(checkpoint)
    if not isinstance(corpus, Corpus):
        corpus = loading.corpus_of(state, checkpoint, corpus, data)
    subset = corpus.require_prepared().subset(name)
    model, task = load_model(checkpoint, corpus, language=language, cpu=cpu, state=state)
    return Split(checkpoint, corpus, corpus.split(name), subset, model, task, sentences, max_tokens)


def dataset_of(task, sources: Sequence[np.ndarray], targets: Sequence[np.ndarray]) -> LanguagePairDataset:
    """fairseq's dataset of sentences and translations as tokens, ``</s>`` last."""
    return LanguagePairDataset(
        list(map(torch.from_numpy, sources)),
        [len(tokens) for tokens in sources],
        task.source_dictionary,
        list(map(torch.from_numpy, targets)),
        [len(tokens) for tokens in targets],
        task.target_dictionary,
        left_pad_source=task.cfg.left_pad_source,
        left_pad_target=task.cfg.left_pad_target,
        shuffle=False,
    )


def on_device(sample: dict, model) -> dict:
    """Move a fairseq batch to the device of a model."""
    device = next(model.parameters()).device
    return utils.move_to_cuda(sample, device) if device.type == "cuda" else sample


def run(model, sample: dict):
    """The output of a model for a batch, with teacher forcing; a language model reads the target alone."""
    if isinstance(model, FairseqLanguageModel):
        return model(sample["net_input"]["prev_output_tokens"])
    return model(**sample["net_input"])


@contextmanager
def captured_attention(model, types: Sequence[str] = ATTENTION_TYPES) -> Iterator[dict[str, list[Tensor]]]:
    """While open, each forward pass of ``model`` stores its attention weights in the yielded dict.

    The dict has, for each attention type in ``types``, a list over layers of weights (B, H, T, S), including
    rows and columns of padding.
    """
    captured: dict[str, list[Tensor]] = {}

    def ask_for_weights(module: nn.Module, args, kwargs):
        return args, {**kwargs, "need_weights": True, "need_head_weights": True}

    def keep(layers: list, layer: int, module: nn.Module, args, output) -> None:
        layers[layer] = output[1].detach().transpose(0, 1)  # (H, B, T, S) → (B, H, T, S)

    with ExitStack() as hooks:
        for attention_type, attentions in model.attentions().items():
            if attention_type not in types:
                continue
            layers = captured[attention_type] = [torch.empty(0)] * len(attentions)
            for layer, attention in enumerate(attentions):
                hooks.callback(attention.register_forward_pre_hook(ask_for_weights, with_kwargs=True).remove)
                hooks.callback(attention.register_forward_hook(partial(keep, layers, layer)).remove)
        yield captured


@contextmanager
def masked_heads(model, heads: Iterable[Head]) -> Iterator[None]:
    """While open, the output projection ignores the outputs of ``heads``, as if they were zero.

    Its bias still applies. Other attentions that share the projection keep it as it is.
    """
    masked: dict[nn.Module, list[int]] = {}
    for attention_type, layer, head in heads:
        masked.setdefault(model.attentions()[attention_type][layer], []).append(head)
    whole = {attention: attention.out_proj for attention in masked}
    try:
        for attention, numbers in masked.items():
            attention.out_proj = copy.deepcopy(whole[attention])
            columns = attention.out_proj.weight.data.unflatten(1, (attention.num_heads, -1))  # (C, H, D)
            columns[:, numbers] = 0
        yield
    finally:
        for attention, projection in whole.items():
            attention.out_proj = projection


def output_norms(model) -> dict[str, list[Tensor]]:
    """The L2 norm of each head's slice of the output projection: by attention type and layer, (H,).

    This is the Frobenius norm of the D columns of W^O that read the head (Correia et al. 2019, section 5).
    """

    def of_heads(attention: nn.Module) -> Tensor:
        columns = attention.out_proj.weight.detach().double().unflatten(1, (attention.num_heads, -1))
        return torch.linalg.vector_norm(columns, dim=(0, 2))  # of (C, H, D)

    return {kind: list(map(of_heads, attentions)) for kind, attentions in model.attentions().items()}


def negative_log_likelihood(model, sample: dict, padding: int) -> tuple[float, int]:
    """The summed −log p of a batch's target tokens, including ``</s>``, in nats, and their number.

    For a model with ``--output-alpha``, where p may be 0, the α-entmax loss instead.
    """
    output, target = run(model, sample), sample["target"]
    real = target.ne(padding)
    normalizer = getattr(model.decoder, "output_normalizer", None)
    if normalizer is not None and not normalizer.is_softmax:
        losses = entmax_loss(output[0], target, normalizer.alpha(), ignore_index=padding)
        return losses.double().sum().item(), int(real.sum())
    log_p = model.get_normalized_probs(output, log_probs=True, sample=sample)  # (B, T, V)
    of_target = log_p.gather(-1, target[..., None])[..., 0]
    return -of_target[real].double().sum().item(), int(real.sum())


def possible_pairs(sample: dict, padding: int) -> dict[str, Tensor]:
    """Masks of existing query-key pairs by attention type, (B, T, S): true if neither is padding.

    In decoder self-attention a query attends to itself and to previous positions only.
    """
    source = sample["net_input"]["src_tokens"].ne(padding)  # (B, S)
    target = sample["net_input"]["prev_output_tokens"].ne(padding)  # (B, T)
    past = torch.ones(target.size(1), target.size(1), dtype=torch.bool, device=target.device).tril()
    return {
        "encoder_self": source[:, :, None] & source[:, None, :],
        "decoder_self": target[:, :, None] & target[:, None, :] & past,
        "decoder_context": target[:, :, None] & source[:, None, :],
    }
