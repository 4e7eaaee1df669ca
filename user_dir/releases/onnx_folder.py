"""A trained model as a folder for onnxruntime, without this package, fairseq and PyTorch."""

from __future__ import annotations

import os
import shutil
import warnings
from functools import partial
from pathlib import Path
from string import Template

import torch
from torch import nn

from ..corpora import Corpus
from ..entmax import onnx_translations
from ..io import write_json
from ..models import AdaptivelySparseTransformerModel
from .folders import Exported, check_same, model_to_export, new_folder
from .onnx_steps import DecoderStep, Encoder

ENCODER, STEP, PIECES, VOCABULARY = "encoder.onnx", "decoder_step.onnx", "spm.model", "vocabulary.json"
PROGRAM = "onnx_translate.py"
_ONE_FILE = 1 << 30  # bytes of parameters; a file of ONNX has less than 2 GiB


def write_folder(checkpoint: Path, corpus: Corpus, output: Path) -> None:
    """Write encoder and decoder step, pieces, vocabulary, a README, and a program that translates with them.

    Log-probabilities of onnxruntime are compared with those of the model before the folder is there.

    Raises:
        UserError: the model or its corpus has something that cannot be expressed; the message names it.
    """
    given = model_to_export(checkpoint, corpus, "ONNX", unsupported_model)
    with new_folder(output, "onnx", ("onnx", "onnxruntime", "onnxscript")) as folder:
        write_graphs(given.model, folder)
        check_same(given, partial(forced, folder))
        shutil.copyfile(corpus.pieces, folder / PIECES)
        symbols = [given.task.source_dictionary.symbols, given.task.target_dictionary.symbols]
        write_json(folder / VOCABULARY, {"source": symbols[0], "target": symbols[1], "limit": given.limit})
        here = Path(__file__)
        shutil.copyfile(here.with_name(PROGRAM), folder / PROGRAM)
        (folder / "README.md").write_text(_readme(given, here.with_suffix(".md")), encoding="utf-8")


def unsupported_model(model: nn.Module) -> str | None:
    """What the exported steps do not have; None if they have all."""
    if type(model) is not AdaptivelySparseTransformerModel:
        return f"it is a {type(model).__name__}; of a stock model, export what convert_checkpoint.py writes"
    decoder = model.decoder
    if model.alignment is not None:
        return "it has a latent alignment"
    if decoder.adaptive_softmax is not None:
        return "it has an adaptive softmax"
    if decoder.prepends_source:
        return "its decoder attends to source and translation together"
    if any(layer.encoder_attn is None for layer in decoder.layers):
        return "its decoder does not attend to the source"
    heads = {each.num_heads for layer in decoder.layers for each in (layer.self_attn, layer.encoder_attn)}
    return None if len(heads) == 1 else "some of its decoder's attentions have fewer heads than others"


def write_graphs(model: nn.Module, folder: Path) -> None:
    """Export both steps, for any number of sentences, length of the source, and position."""
    size = {name: torch.export.Dim(name, min=0) for name in ("batch", "source_length", "past_length")}
    encoder, source = Encoder(model).eval(), torch.full((3, 5), 4)
    tokens = {0: size["batch"], 1: size["source_length"]}
    export(encoder, {"source": source}, {"source": tokens}, ["context"], folder / ENCODER)
    with torch.no_grad():
        context = encoder(source)
    # tensors of their own, whose sizes differ: export takes views and equal sizes for the same
    given = {"token": torch.full((3,), 4), "past": context[:, :, :, :, :4].clone(), "context": context}
    given["source"] = source
    shapes = {
        "token": {0: size["batch"]},
        "past": {2: size["batch"], 4: size["past_length"]},
        "context": {2: size["batch"], 4: size["source_length"]},
        "source": tokens,
    }
    export(DecoderStep(model).eval(), given, shapes, ["log_probs", "present"], folder / STEP)


def export(module: nn.Module, given: dict, shapes: dict, outputs: list[str], path: Path) -> None:
    """Export a module as ONNX."""
    parameters = sum(each.numel() * each.element_size() for each in module.parameters())
    with warnings.catch_warnings(), torch.no_grad():
        warnings.simplefilter("ignore")  # of names for sizes that are the same, and of torch's own
        torch.onnx.export(
            module,
            kwargs=given,
            f=path,
            input_names=list(given),
            output_names=outputs,
            dynamic_shapes=shapes,
            custom_translation_table=onnx_translations(),
            external_data=parameters > _ONE_FILE,
            dynamo=True,
            optimize=False,  # it takes the 1e-8 of an RMS norm for 0; onnxruntime optimises when it loads
            verbose=False,
        )


def forced(folder: Path, source: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
    """Log-probabilities (B, T, V) by onnxruntime, while the decoder reads the target (B, T)."""
    os.environ.setdefault("ORT_DISABLE_TELEMETRY", "1")  # otherwise it tells Microsoft of its use
    import onnxruntime

    encoder, step = (
        onnxruntime.InferenceSession(folder / name, providers=["CPUExecutionProvider"])
        for name in (ENCODER, STEP)
    )
    (context,) = encoder.run(None, {"source": source.numpy()})
    past, found = context[:, :, :, :, :0], []
    for token in target.numpy().T:
        given = {"token": token, "past": past, "context": context, "source": source.numpy()}
        log_probs, past = step.run(None, given)
        found.append(torch.from_numpy(log_probs))
    return torch.stack(found, 1)


def _readme(given: Exported, template: Path) -> str:
    decoder = given.model.decoder
    attention = decoder.layers[0].self_attn
    values = {
        "name": given.corpus.name,
        "source": given.direction[0],
        "target": given.direction[1],
        "layers": len(decoder.layers),
        "heads": attention.num_heads,
        "head_dim": attention.head_dim,
        "symbols": decoder.embed_tokens.num_embeddings,
        "positions": "{} tokens of a source and {} of a translation".format(*given.model.max_positions()),
    }
    return Template(template.read_text(encoding="utf-8")).substitute(values)
