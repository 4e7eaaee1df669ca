"""Which way a first try takes, before native kernels are compiled."""

from __future__ import annotations

import os

import pytest

from user_dir.commands.translate import find_models, parse_args


@pytest.mark.parametrize(
    ("flags", "waits"),
    [(["Ein Satz."], False), (["Ein Satz.", "--int8"], True), ([], True)],
)
def test_sentences_of_a_named_model_do_not_wait_for_kernels(flags, waits, tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("TORCH_EXTENSIONS_DIR", str(tmp_path))  # where no kernel is
    monkeypatch.setenv("ENTMAX_BACKEND", "")
    del os.environ["ENTMAX_BACKEND"]
    args = parse_args(["--model", "de-en", *flags])
    find_models(args)
    assert [path.name for path in args.path] == ["de-en.tar"]
    assert os.environ.get("ENTMAX_BACKEND") == (None if waits else "reference")
    assert ("not compiled" in capsys.readouterr().err) != waits
