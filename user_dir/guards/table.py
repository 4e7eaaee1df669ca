"""The guards by name: of which kind each is, and where in fairseq its cause lies.

A guard is the module of this package that has its name. Only the standard library is needed, so that command
lines can offer the names before fairseq is imported.
"""

import ast
import os
import re
from dataclasses import dataclass
from enum import Enum
from pathlib import Path

from ..errors import UserError

WITHOUT = "ADAPTIVELY_SPARSE_WITHOUT_GUARDS"
"""Environment variable: names of the guards to leave out, separated by commas."""


class Kind(Enum):
    """What a guard does to fairseq."""

    EXPLAINS = "refuses or explains"
    REPAIRS = "repairs a crash or a loss"
    CHANGES = "changes what fairseq computes"


@dataclass(frozen=True)
class Guard:
    """One guard; ``where`` are the files that a patch of the software concerned would touch."""

    name: str
    kind: Kind
    where: str

    @property
    def module(self) -> str:
        """The name of its module."""
        return self.name.replace("-", "_")

    def reasons(self) -> tuple[str, str]:
        """What is wrong, and what would make the guard unnecessary: sentences of the module's docstring."""
        source = Path(__file__).with_name(f"{self.module}.py").read_text(encoding="utf-8")
        whole = " ".join((ast.get_docstring(ast.parse(source)) or "").split())
        found = re.search(r"Unnecessary (once .*?)\.(?= |$)", whole)
        return re.split(r"(?<=\.) ", whole, maxsplit=1)[0], found.group(1) if found else ""


_ALL = """
debug-logging         REPAIRS   fairseq/models/wav2vec
bfloat16-flag         REPAIRS   fairseq/options.py
hostile-checkpoints   EXPLAINS  fairseq/checkpoint_utils.py
missing-data          EXPLAINS  fairseq/tasks/__init__.py
torn-checkpoints      REPAIRS   fairseq/checkpoint_utils.py, fairseq/file_io.py
broken-data           EXPLAINS  fairseq/data/indexed_dataset.py, fairseq/data/dictionary.py
beam-search           CHANGES   fairseq/sequence_generator.py
embedding-files       EXPLAINS  fairseq/utils.py
no-translation-models EXPLAINS  fairseq/tasks/translation.py
multilingual-tasks    REPAIRS   fairseq/tasks/translation_multi_simple_epoch.py
colons-in-paths       REPAIRS   fairseq/utils.py
numpy-long            REPAIRS   fairseq/data
masked-separators     CHANGES   fairseq/data/mask_tokens_dataset.py
oversized-models      EXPLAINS  fairseq/models/__init__.py
workers               REPAIRS   fairseq/distributed/utils.py, fairseq/checkpoint_utils.py
orphans               REPAIRS   fairseq/distributed/utils.py
exhausted-beams       REPAIRS   fairseq/sequence_generator.py, fairseq/search.py
repeated-ngrams       CHANGES   fairseq/ngram_repeat_block.py
blank-sources         CHANGES   fairseq/sequence_generator.py
unfinished-translations EXPLAINS fairseq/sequence_generator.py, fairseq/tasks/translation.py
model-overrides       REPAIRS   fairseq/checkpoint_utils.py
hydra-settings        REPAIRS   fairseq/models/transformer/transformer_config.py
untyped-settings      EXPLAINS  fairseq/models
search-settings       EXPLAINS  fairseq/sequence_generator.py, fairseq/tasks/translation.py
finished-runs         CHANGES   fairseq_cli/train.py
vocabularies          EXPLAINS  fairseq/trainer.py, fairseq/checkpoint_utils.py
patience              CHANGES   fairseq_cli/train.py
repeated-commands     CHANGES   fairseq/checkpoint_utils.py
interrupts            EXPLAINS  fairseq_cli/train.py
tensorboard           REPAIRS   tensorboardX/event_file_writer.py
parameter-groups      REPAIRS   fairseq/optim/composite.py
prefetching           REPAIRS   fairseq/data/iterators.py
cuda-graphs           CHANGES   fairseq/trainer.py, fairseq/tasks/fairseq_task.py
update-reports        REPAIRS   fairseq/trainer.py
validation-bleu       CHANGES   fairseq/tasks/translation.py
moving-average        CHANGES   fairseq/models/ema/ema.py
smoothed-loss         CHANGES   fairseq/criterions/label_smoothed_cross_entropy.py
rdrop-losses          CHANGES   fairseq/criterions/label_smoothed_cross_entropy_with_rdrop.py
scalar-quantization   REPAIRS   fairseq/modules/quantization/scalar
pretrained-encoders   REPAIRS   fairseq/models/roberta/enc_dec.py
epochs-in-workers     CHANGES   fairseq/data/iterators.py
last-batches          CHANGES   fairseq/data/data_utils.py, fairseq/data/iterators.py
resumed-epochs        CHANGES   fairseq/tasks/fairseq_task.py, fairseq/data/iterators.py
long-sentences        EXPLAINS  fairseq/tasks/fairseq_task.py
typed-text            CHANGES   fairseq/data/encoders/sentencepiece_bpe.py
short-log             EXPLAINS  fairseq/logging/progress_bar.py
"""
# In the order of installation: torn-checkpoints wraps what hostile-checkpoints reads with,
# no-translation-models checks what beam-search builds, unfinished-translations sees what exhausted-beams and
# blank-sources make of a search, update-reports informs the model before cuda-graphs asks it, short-log comes
# after what reports and ends runs.
GUARDS = tuple(
    Guard(name, Kind[kind], where)
    for name, kind, where in (line.split(maxsplit=2) for line in _ALL.strip().splitlines())
)


def left_out() -> set[str]:
    """The names in the environment variable; raises UserError for one that is no guard's."""
    return set(filter(None, map(checked, os.environ.get(WITHOUT, "").split(","))))


def checked(name: str) -> str:
    """The name of a guard, or nothing, as given; raises UserError if there is no such guard."""
    name = name.strip()
    known = [guard.name for guard in GUARDS]
    if name and name not in known:
        raise UserError(f"there is no guard {name!r} to leave out; choose from {', '.join(known)}")
    return name
