"""COMET of translations, by a model that the user has (Rei et al. 2020, https://arxiv.org/abs/2009.09025).

``unbabel-comet`` needs NumPy 1 and transformers 4, so that it cannot be installed beside this package. Its
command ``comet-score`` computes the scores, in the environment that it is installed in and without network.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path

import msgspec
from msgspec import Struct

from ..corpora.checksums import sha256
from ..errors import UserError

COMMAND = "comet-score"


class _Segment(Struct):
    COMET: float


class Comet:
    """A COMET model as unbabel-comet keeps it: a folder with ``hparams.yaml`` and ``checkpoints/*.ckpt``.

    Args:
        folder: of the model.
        cpu: use the CPU even if there is a GPU.

    Raises:
        UserError: this is not such a folder, or ``comet-score`` is not on the PATH.
    """

    def __init__(self, folder: Path, *, cpu: bool = False):
        checkpoints = sorted(folder.glob("checkpoints/*.ckpt"))
        if len(checkpoints) != 1 or not (folder / "hparams.yaml").is_file():
            raise UserError(
                f"--comet {folder}: it is not the folder of a COMET model, which has hparams.yaml and one "
                "checkpoints/*.ckpt"
            )
        if shutil.which(COMMAND) is None:
            raise UserError(
                f"--comet: there is no {COMMAND} on the PATH; install it in an environment of its own, as it "
                "needs an older NumPy: pipx install unbabel-comet; pipx inject unbabel-comet 'setuptools<81'"
            )
        self._checkpoint, self._gpus = checkpoints[0], "0" if cpu else "1"
        digest = sha256(self._checkpoint)
        self.signature = f"{folder.resolve().name}|sha256:{digest[:12]}"

    def score(self, sources: Sequence[str], translations: Sequence[str], references: Sequence[str]) -> float:
        """The mean over sentences, as ``comet-score`` gives it; models without references ignore them.

        Raises UserError if ``comet-score`` fails, for instance because the tokenizer that the model names is
        not on this machine.
        """
        with tempfile.TemporaryDirectory() as temporary:
            folder = Path(temporary)
            for name, lines in {"src": sources, "mt": translations, "ref": references}.items():
                text = "".join(f"{' '.join(line.split())}\n" for line in lines)
                (folder / name).write_text(text, encoding="utf-8")
            words = [COMMAND, "-s", "src", "-t", "mt", "-r", "ref", "--model", self._checkpoint.resolve()]
            words += ["--gpus", self._gpus, "--only_system", "--quiet", "--to_json", "scores.json"]
            environment = {
                **os.environ,
                "HF_HUB_OFFLINE": "1",
                "TRANSFORMERS_OFFLINE": "1",
                "PYTHONUTF8": "1",
            }
            done = subprocess.run(words, cwd=folder, env=environment, capture_output=True, text=True)
            if done.returncode != 0 or not (folder / "scores.json").is_file():
                reason = (done.stderr or done.stdout).strip().rpartition("\n")[2]
                raise UserError(
                    f"{COMMAND} fails with {self._checkpoint}: {reason}; nothing was downloaded for it"
                )
            found = msgspec.json.decode((folder / "scores.json").read_bytes(), type=dict[str, list[_Segment]])
        segments = found["mt"]
        if len(segments) != len(translations):
            raise UserError(f"{COMMAND} scored {len(segments)} of {len(translations)} sentences")
        return sum(each.COMET for each in segments) / len(segments)
