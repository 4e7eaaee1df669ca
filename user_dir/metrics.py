"""sacrebleu's metrics for text in a language."""

from __future__ import annotations

import logging
from collections.abc import Iterable
from dataclasses import replace
from functools import lru_cache
from pathlib import Path

import sacrebleu
from sacrebleu.tokenizers.tokenizer_spm import SPM_MODELS
from sacrebleu.tokenizers.tokenizer_ter import TercomTokenizer
from sacrebleu.utils import SACREBLEU_DIR

from .errors import UserError
from .io import shown
from .languages import UNSPACED_CHARACTER, Language, language, unspaced_script

logger = logging.getLogger(__name__)


def make_bleu(
    code: str,
    tokenize: str | None = None,
    lower_case: bool = False,
    lines: Iterable[str] = (),
    tokens: bool = False,
) -> sacrebleu.metrics.BLEU:
    """sacrebleu's BLEU for text in a language; nothing is downloaded.

    Args:
        code: of the language.
        tokenize: sacrebleu's tokenizer; None for that of the language, see :func:`written`.
        lower_case: ignore case.
        lines: references, or some of them.
        tokens: the text is known to be of tokens, of which sacrebleu otherwise warns.

    Raises:
        UserError: the tokenizer is unknown, or what it needs is not on this machine.
    """
    found = written(code, lines)
    if tokenize is None:
        tokenize = found.tokenizer
        _warn_of_code(code, found.script, tokenize)
    else:
        _require_tokenizer(tokenize)
        if not found.spaced and tokenize in ("13a", "intl"):
            _warn_of_spaces(tokenize, code)
    try:
        return sacrebleu.metrics.BLEU(tokenize=tokenize, lowercase=lower_case, force=tokens)
    except (RuntimeError, ImportError, OSError) as error:  # of Japanese, Korean, and sentencepiece's models
        raise UserError(
            f"sacrebleu's tokenizer {tokenize} does not work here ({' '.join(str(error).split())}); "
            "install what it names, or use --tokenize char"
        ) from None


def make_ter(code: str, lower_case: bool = False, lines: Iterable[str] = ()) -> sacrebleu.metrics.TER:
    """sacrebleu's TER for text in a language; case matters, since post-editors correct it, too.

    Text without spaces is split into characters, see :class:`CharacterTokenizer`; ``lines`` as in
    :func:`make_bleu`.
    """
    if written(code, lines).spaced:
        return sacrebleu.metrics.TER(case_sensitive=not lower_case)
    ter = sacrebleu.metrics.TER(case_sensitive=not lower_case, normalized=True, asian_support=True)
    ter.tokenizer = CharacterTokenizer(normalized=True, asian_support=True, case_sensitive=not lower_case)
    ter.tokenizer_signature = ter.tokenizer.signature()
    return ter


def written(code: str, lines: Iterable[str] = ()) -> Language:
    """The language of a code as it is written: where the text of ``lines`` has no spaces, it is believed."""
    found = language(code)
    script = unspaced_script(lines) if found.spaced else None
    return found if script is None else replace(found, script=script)


def require_known_tokenizer(tokenize: str, where: str = "") -> None:
    """Raise UserError, which says ``where``, unless sacrebleu has a tokenizer of this name."""
    known = sacrebleu.metrics.BLEU.TOKENIZERS
    if tokenize not in known:
        raise UserError(
            f"{where}sacrebleu has no tokenizer {shown(tokenize)}; choose from {', '.join(known)}"
        )


def _require_tokenizer(tokenize: str) -> None:
    """Raise UserError unless sacrebleu has this tokenizer on this machine."""
    require_known_tokenizer(tokenize)
    if tokenize in SPM_MODELS:
        model = Path(SACREBLEU_DIR) / "models" / SPM_MODELS[tokenize]["url"].rpartition("/")[2]
        if not model.is_file():
            raise UserError(
                f"the model of sacrebleu's tokenizer {tokenize} is not on this machine, and nothing "
                f"is downloaded unasked; put it at {model}, or use another --tokenize"
            )


def bleu_settings(signature: str) -> tuple[str | None, bool]:
    """What a signature of BLEU says: the tokenizer (None if it names none), and whether text is lower-cased.

    The tokenizer is without its version: ``ja-mecab`` for ``tok:ja-mecab-0.996-IPA``; an unknown one is
    returned as it is.
    """
    parts = dict(part.partition(":")[::2] for part in signature.split("|"))
    lower_case, tokenizer = parts.get("case") == "lc", parts.get("tok")
    known = sacrebleu.metrics.BLEU.TOKENIZERS
    if tokenizer is not None and tokenizer not in known:
        tokenizer = next((each for each in known if tokenizer.startswith(f"{each}-")), tokenizer)
    return tokenizer, lower_case


class CharacterTokenizer(TercomTokenizer):
    """TER's tokenizer, with every character of a script without spaces as a token.

    sacrebleu's own ``asian_support`` does so for Chinese characters alone, and leaves kana, Thai and others
    whole.
    """

    @lru_cache(maxsize=2**16)  # noqa: B019  as sacrebleu's own
    def __call__(self, sent: str) -> str:
        """The tokens, separated by spaces."""
        return super().__call__(UNSPACED_CHARACTER.sub(r" \g<0> ", sent))

    def signature(self) -> str:
        """The name in signatures of TER."""
        return "tercom-char"


@lru_cache(maxsize=256)  # once per language and process
def _warn_of_code(code: str, script: str | None, tokenize: str) -> None:
    if script is None and code:
        logger.warning(
            "warning: how %r is written is not known: BLEU takes its words to be parted by spaces (%s); "
            "use a code such as de, zh_Hant or kac_Latn, or --tokenize",
            code,
            tokenize,
        )
    elif language(code).script != script:
        logger.warning(
            "warning: the text%s is written without spaces (%s): BLEU's tokenizer is %s; use the code of its "
            "language, such as zh_CN or th, or --tokenize",
            f" of {code!r}" if code else "",
            script,
            tokenize,
        )


@lru_cache(maxsize=256)
def _warn_of_spaces(tokenize: str, code: str) -> None:
    logger.warning(
        "warning: the words of %s are not parted by spaces, as --tokenize %s expects", code, tokenize
    )
