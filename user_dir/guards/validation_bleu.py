"""fairseq's BLEU in validation (``--eval-bleu``) parts words at spaces, in any language.

It always uses sacrebleu's tokenizer 13a, by which a sentence written without spaces is one word: right
translations into Thai or Chinese score about 0, and training stops early by it. In all versions. Unnecessary
once fairseq's translation task asks for a tokenizer, or for the language. Without ``--eval-bleu``, a run
whose best checkpoint is to be that of the best BLEU ends in a KeyError after its first epoch.
"""

from unittest.mock import patch

from fairseq.tasks.translation import TranslationTask
from fairseq.trainer import Trainer

from ..errors import UserError, exit_on_user_error
from .announcing import acted
from .installing import around

# fairseq's unknown symbols of both sides → characters that match no other: as words they have most letters
# in common.
_UNKNOWN = {"UNKNOWNTOKENINREF": "\ue000", "UNKNOWNTOKENINHYP": "\ue001"}


@around(Trainer, "__init__")
def require_bleu(begin, self, cfg, *args, **kwargs):
    """Refuse to choose the best checkpoint by a BLEU that is not computed."""
    computed = getattr(cfg.task, "eval_bleu", True)
    with exit_on_user_error():
        if cfg.checkpoint.best_checkpoint_metric == "bleu" and computed is False:
            raise UserError(
                "best_checkpoint_metric is bleu, but eval_bleu is false: have BLEU computed, or choose the "
                "best by the loss (best_checkpoint_metric=loss, maximize_best_checkpoint_metric=false)"
            )
    begin(self, cfg, *args, **kwargs)


@around(TranslationTask, "_inference_with_bleu")
def score_by_language(inference, self, generator, sample, model):
    """Score with the tokenizer of the target language, unless tokens or pieces are scored."""
    import sacrebleu  # here, because trainings without --eval-bleu start without it

    from ..metrics import make_bleu

    stock = sacrebleu.corpus_bleu

    def corpus_bleu(hypotheses, references, **options):
        if options:
            return stock(hypotheses, references, **options)
        bleu = getattr(self, "_validation_bleu", None)
        if bleu is None:  # the text of the first batch tells where the code of the language does not
            bleu = self._validation_bleu = make_bleu(self.cfg.target_lang, lines=references[0])
        if bleu.tokenizer.signature() == "13a":
            return stock(hypotheses, references)
        acted("validation-bleu", f"scores --eval-bleu with the tokenizer {bleu.tokenizer.signature()}")
        return bleu.corpus_score(_marked(hypotheses), list(map(_marked, references)))

    with patch.object(sacrebleu, "corpus_bleu", corpus_bleu):
        return inference(self, generator, sample, model)


def _marked(lines: list[str]) -> list[str]:
    for word, character in _UNKNOWN.items():
        lines = [line.replace(word, character) for line in lines]
    return lines
