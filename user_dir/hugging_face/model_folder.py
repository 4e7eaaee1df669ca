"""A trained model as a plain folder, which ``translate.py --model`` and fairseq's ``from_pretrained`` take.

It has ``model.pt``, ``dict.LANGUAGE.txt``, the pieces or a BERT's vocabulary, ``corpus.yaml``, ``README.md``.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import torch
from fairseq.dataclass.configs import GenerationConfig
from omegaconf import OmegaConf
from torch import Tensor

from ..checkpoints import for_inference, load_checkpoint, model_name, num_updates, save_checkpoint
from ..corpora import Corpus
from ..corpora.download import checksum
from ..errors import UserError
from ..files import copy_file, markdown, read_json, write_text
from ..translation.loading import MAX_LEN_B, translation_direction, translation_limit

_CARD = """# {name}, {source} → {target}

```
python scripts/translate.py --model FOLDER < source.txt
```

{model}

{scores}

Data: {data.title}. Licence: {data.licence}. Citation: {data.citation}.
"""


@contextmanager
def new_folder(output: Path) -> Iterator[Path]:
    """Yield a folder to fill, which becomes ``output`` if nothing goes wrong.

    Raises:
        UserError: ``output`` exists.
    """
    if output.exists():
        raise UserError(f"{output} exists already; name a new folder")
    output.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=output.parent) as temporary:
        folder = Path(temporary) / output.name
        folder.mkdir()
        yield folder
        folder.rename(output)


def write_folder(checkpoint: Path, corpus: Corpus, output: Path, dtype: torch.dtype, extra: dict) -> None:
    """Write the folder of a translation model, with its parameters in ``dtype``.

    ``extra_state`` of ``model.pt`` has what only the prepared corpus can tell: the limit of the length of
    translations, and ``extra``, such as which head aligns best.
    """
    state = load_checkpoint(checkpoint)
    direction = translation_direction(state, checkpoint, corpus)
    limit = translation_limit(state, corpus)
    state = for_inference(state)
    state["extra_state"] |= {MAX_LEN_B: limit.b, **extra}
    search = OmegaConf.to_container(OmegaConf.structured(GenerationConfig()), resolve=True, enum_to_str=True)
    state["cfg"] |= {"generation": search, "bpe": None, "tokenizer": None}  # which from_pretrained needs
    state["model"] = in_precision(state["model"], dtype)
    with new_folder(output) as folder:
        save_checkpoint(state, folder / "model.pt")
        dictionaries = [corpus.bin / f"dict.{language}.txt" for language in corpus.languages]
        for file in (corpus.pieces, *dictionaries):
            copy_file(file, folder / file.name)
        copy_file(corpus.description.path, folder / "corpus.yaml")
        write_text(folder / "README.md", model_card(state, corpus, direction, scores_of(checkpoint)))


def in_precision(model: dict[str, Tensor], dtype: torch.dtype) -> dict[str, Tensor]:
    """The parameters in another precision; those that share memory still do."""
    converted = {id(x): x.to(dtype) if x.is_floating_point() else x for x in model.values()}
    return {name: converted[id(value)] for name, value in model.items()}


def scores_of(checkpoint: Path) -> list[dict]:
    """What evaluate.py wrote of this checkpoint: in ``evaluation/CHECKPOINT`` or ``evaluation`` beside it."""
    folder = checkpoint.parent / "evaluation"
    files = [*sorted((folder / checkpoint.stem).glob("*.json")), *sorted(folder.glob("*.json"))]
    digest = checksum(checkpoint, "sha256")
    return [scores for scores in map(read_json, files) if scores.get("checkpoint_sha256") == digest]


def model_card(state: dict, corpus: Corpus, direction: tuple[str, str], evaluations: list[dict]) -> str:
    """The README of a folder: architecture, scores, licences."""
    tensors = {id(value): value for value in state["model"].values()}.values()
    model = [["architecture", model_name(state)], ["updates", num_updates(state)]]
    model.append(["parameters", f"{sum(value.numel() for value in tensors):,}"])
    metrics = {"BLEU": "bleu", "chrF": "chrf", "TER": "ter"}
    rows = [
        [test["test_set"], test["sentences"], test["beam"], *(f"{test[key]:.1f}" for key in metrics.values())]
        for test in evaluations
    ]
    return _CARD.format(
        name=corpus.name,
        source=direction[0],
        target=direction[1],
        model=markdown(model, ["", ""]),
        scores=markdown(rows, ["test set", "sentences", "beam", *metrics]) if rows else "Not scored.",
        data=corpus.description,
    )
