"""hydra composes fairseq's settings in a third of the time, which is most of that of a short command."""

import copy
import dataclasses
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
    module, name = sys.modules["hydra.initialize"], "detect_calling_file_or_module_from_stack_frame"
    setattr(module, name, functools.cache(getattr(module, name)))
    _keep_groups()


def _keep_groups() -> None:
    """Read the files of settings once for each choice of groups, such as that of an optimizer."""
    from hydra._internal import config_loader_impl

    find, kept = config_loader_impl.create_defaults_list, {}

    def quick(repo, config_name, overrides_list, **options):
        groups, values = [], []
        for override in overrides_list:
            is_group = repo.group_exists(override.key_or_group) and not isinstance(override.value(), dict)
            (groups if is_group else values).append(override)
        places = (source.path for source in repo.get_sources())
        key = config_name, *places, *(override.input_line for override in groups), *options.values()
        if key not in kept:
            kept[key] = find(repo, config_name, groups, **options)
        return dataclasses.replace(kept[key], config_overrides=values)

    config_loader_impl.create_defaults_list = quick
    loader, composed = config_loader_impl.ConfigLoaderImpl, {}
    compose = loader._compose_config_from_defaults_list

    def quick_compose(self, defaults, repo):
        if id(defaults) not in composed:  # which ``kept`` keeps
            composed[id(defaults)] = compose(self, defaults, repo)
        return copy.deepcopy(composed[id(defaults)])

    loader._compose_config_from_defaults_list = quick_compose
