"""hydra composes fairseq's settings in half the time, which is most of that of a short command."""

import copy
import functools
import sys


def quicken() -> None:
    """Spare hydra, in this process, what it does again and again; what it composes is the same."""
    from hydra.core.config_store import ConfigStore
    from hydra.core.override_parser.overrides_parser import OverridesParser

    # It copies all of fairseq's settings for each composition, and then again each that it takes from them.
    ConfigStore.__deepcopy__ = lambda self, memo: self
    # Of about 250 overrides, nearly all are those of the command before.
    parse, parser = OverridesParser.parse_rule, OverridesParser.create()
    known = functools.lru_cache(10_000)(functools.partial(parse, parser))
    quick = functools.wraps(parse)(lambda self, text, rule: copy.copy(known(text, rule)))
    OverridesParser.parse_rule = quick
    # It reads the source of every caller to find that fairseq calls it.
    found, name = sys.modules["hydra.initialize"], "detect_calling_file_or_module_from_stack_frame"
    setattr(found, name, functools.cache(getattr(found, name)))
