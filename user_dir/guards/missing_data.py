"""A checkpoint read without a data folder ends with an error about a file that nobody named.

The folder that a checkpoint names is not followed (:mod:`.file_settings`), and fairseq 0.12.2 and later say
only which dictionary is missing. Unnecessary once fairseq says which argument names the data.
"""

from __future__ import annotations

import functools

from fairseq import tasks

from ..errors import UserError
from .file_settings import NO_DATA


def install() -> None:
    """Say how to name the folder, where a task needs it."""
    setup = tasks.setup_task

    @functools.wraps(setup)
    def setup_task(cfg, **kwargs):
        try:
            return setup(cfg, **kwargs)
        except Exception as error:
            if getattr(cfg, "data", None) != NO_DATA:
                raise
            raise UserError(
                "the task needs its data, and the folder that a checkpoint names is not followed; give it: "
                'load_model_ensemble_and_task([…], {"data": FOLDER}), '
                "from_pretrained(…, data_name_or_path=FOLDER), or as the first argument of a command"
            ) from error

    tasks.setup_task = setup_task
