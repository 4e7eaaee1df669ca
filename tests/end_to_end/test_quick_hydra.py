"""hydra composes the same with ``quick_hydra`` as without."""

import copy

import pytest
from hydra.core.config_store import ConfigStore
from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.errors import OverrideParseException
from omegaconf import OmegaConf

from user_dir.config import check_settings


def test_overrides_are_parsed_as_by_hydra():
    parser, original = OverridesParser.create(), OverridesParser.parse_rule.__wrapped__
    for text in ("common.seed=1", "++a.b={c: [1, 'd']}", "~model.dropout", "a=1,2", "a=x\\ y"):
        expected, found = original(parser, text, "override"), parser.parse_override(text)
        assert found == expected and found.value() == expected.value()
        found.key_or_group = "another"  # a caller may change what it was given
        assert parser.parse_override(text) == expected
    for _ in range(2):
        with pytest.raises(OverrideParseException, match="a b"):
            parser.parse_overrides(["a b"])


def test_composing_leaves_the_store_as_it_is(pytestconfig):
    def nodes(folder):
        return {
            name: nodes(each) if isinstance(each, dict) else OmegaConf.to_yaml(each.node)
            for name, each in folder.items()
        }

    path = pytestconfig.rootpath / "configs" / "toy" / "alpha_entmax.yaml"
    expected = check_settings(path, [])  # the first in a process, which loads hydra's plugins
    before = nodes(ConfigStore.instance().repo)
    assert copy.deepcopy(ConfigStore.instance()) is ConfigStore.instance(), "it is not quick"
    assert check_settings(path, ["model.dropout=0.7"])["model"]["dropout"] == 0.7
    assert nodes(ConfigStore.instance().repo) == before and check_settings(path, []) == expected
