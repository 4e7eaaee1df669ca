"""A checkpoint read without a data folder ends with an error about a file that nobody named.

The folder that a checkpoint names is not followed (:mod:`.hostile_settings`), and fairseq 0.12.2 and later
say only which dictionary is missing. Unnecessary once fairseq says which argument names the data.
"""

from fairseq import tasks

from ..errors import UserError
from .hostile_settings import NO_DATA
from .installing import around


@around(tasks, "setup_task")
def setup_task(setup, cfg, **kwargs):
    """Say how to name the folder, where a task needs it."""
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
