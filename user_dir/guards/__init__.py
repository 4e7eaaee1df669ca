"""All changes to fairseq's behaviour, one module per reason.

Each module says what is wrong, since when, and what would make it unnecessary. Nothing else in this package
patches fairseq or PyTorch. Importing ``user_dir.models`` installs all guards, once per process.
"""

from __future__ import annotations


def install() -> None:
    """Install all guards, unless already installed, possibly under this package's other name."""
    import fairseq

    if hasattr(fairseq, "guarded_by"):
        return
    fairseq.guarded_by = __name__

    from . import (
        beam_search,
        broken_data,
        debug_logging,
        exhausted_beams,
        finished_runs,
        hostile_checkpoints,
        hydra_settings,
        interrupts,
        last_batches,
        long_sentences,
        model_overrides,
        moving_average,
        no_translation_models,
        numpy_long,
        oversized_models,
        patience,
        prefetching,
        pretrained_encoders,
        resumed_epochs,
        short_log,
        tensorboard,
        torn_checkpoints,
        update_reports,
        validation_bleu,
        workers,
    )

    debug_logging.install()
    hostile_checkpoints.install()
    torn_checkpoints.install()  # wraps the reading function of hostile_checkpoints
    broken_data.install()
    beam_search.install()
    no_translation_models.install()  # checks what the building of generators is given
    numpy_long.install()
    oversized_models.install()
    workers.install()
    exhausted_beams.install()
    model_overrides.install()
    hydra_settings.install()
    finished_runs.install()
    patience.install()
    interrupts.install()
    tensorboard.install()
    prefetching.install()
    update_reports.install()
    validation_bleu.install()
    moving_average.install()
    pretrained_encoders.install()
    last_batches.install()
    resumed_epochs.install()
    long_sentences.install()
    short_log.install()  # after what ends finished runs, and what reports interrupts
