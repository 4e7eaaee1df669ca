"""Attention maps: writing, reading, refusing corrupt files, and use with bertviz."""

from __future__ import annotations

import json
import re
import tracemalloc
import zipfile

import numpy as np
import pytest
from examples import sentence, write_maps

from user_dir.analysis.maps import Maps, SentenceMaps, bertviz_arguments
from user_dir.analysis.maps_writer import maps_writer
from user_dir.attention_types import ATTENTION_TYPES
from user_dir.errors import UserError


def same(one: SentenceMaps, other: SentenceMaps) -> bool:
    tokens = all(
        getattr(one, name) == getattr(other, name) for name in ("source", "target", "target_input", "text")
    )
    return tokens and all(np.array_equal(one.weights[name], other.weights[name]) for name in ATTENTION_TYPES)


def test_written_maps_are_read_unchanged(tmp_path):
    sentences = [sentence(5, 4, seed=1), sentence(2, 7, seed=2, text="Ein </script> „Satz“.")]
    maps = Maps(write_maps(tmp_path / "new" / "maps.npz", sentences))
    assert len(maps) == 2
    assert all(same(one, other) for one, other in zip(maps, sentences))
    assert maps[1].weights["decoder_context"].dtype == np.float32


def test_the_same_maps_give_the_same_bytes(tmp_path):
    one, other = (write_maps(tmp_path / name).read_bytes() for name in ("a.npz", "b.npz"))
    assert one == other


def test_numpy_alone_reads_it(tmp_path):
    alphas = {"encoder_self": [[1.5, 2.0, 1.25]] * 2}
    maps = Maps(write_maps(tmp_path / "maps.npz", corpus="toy", subset="test", alphas=alphas))
    assert (maps.corpus, maps.subset) == ("toy", "test")
    assert {name: each.tolist() for name, each in maps.alphas.items()} == alphas
    arrays = np.load(tmp_path / "maps.npz", allow_pickle=False)
    of_sentence = [f"0/{name}" for name in (*ATTENTION_TYPES, "source", "target_input", "target")]
    assert sorted(arrays.files) == sorted([*of_sentence, "corpus", "subset", "alpha/encoder_self"])
    assert (str(arrays["corpus"]), str(arrays["subset"])) == ("toy", "test")
    assert arrays["alpha/encoder_self"].tolist() == alphas["encoder_self"]
    assert arrays["0/decoder_context"].shape == (2, 3, 4, 5)
    assert arrays["0/source"].tolist()[-1] == "</s>"
    earlier = Maps(write_maps(tmp_path / "maps.npz"))
    assert (earlier.corpus, earlier.subset, earlier.alphas) == (None, None, {})


def test_memory_does_not_grow_with_the_sentences(tmp_path):
    """Sixty sentences of 0.3 MB would be noticeable if they were kept in memory."""
    each = sentence(40, 40, 4, 4)
    size = sum(weights.nbytes for weights in each.weights.values())
    tracemalloc.start()
    try:
        with maps_writer(tmp_path / "maps.npz") as writer:
            for _ in range(60):
                writer.write(each)
        written = tracemalloc.get_traced_memory()[1]
        tracemalloc.reset_peak()
        assert sum(len(each.source) for each in Maps(tmp_path / "maps.npz")) == 2400
        read = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert max(written, read) < 8 * size


def test_a_failure_leaves_no_file(tmp_path):
    with pytest.raises(KeyError), maps_writer(tmp_path / "maps.npz") as writer:
        writer.write(sentence())
        raise KeyError
    assert not list(tmp_path.iterdir())


def test_numbers_out_of_range_are_named(tmp_path):
    write_maps(tmp_path / "maps.npz")
    maps = Maps(tmp_path / "maps.npz")
    with pytest.raises(UserError, match=r"maps\.npz has no sentence 1: it has sentences 0 to 0"):
        maps[1]
    with pytest.raises(UserError, match="no layer 0, head 3: layers are 0 to 1 and heads 0 to 2"):
        maps[0].head("encoder_self", 0, 3)
    with pytest.raises(UserError, match="no context; they have encoder_self"):
        maps[0].head("context", 0, 0)


def test_other_files_are_refused(tmp_path):
    with pytest.raises(UserError, match=r"no attention maps .*none\.npz"):
        Maps(tmp_path / "none.npz")
    write_maps(tmp_path / "maps.npz")
    (tmp_path / "cut.npz").write_bytes((tmp_path / "maps.npz").read_bytes()[:-100])
    (tmp_path / "text.npz").write_text("text")
    (tmp_path / "empty.npz").write_bytes(b"")
    np.save(tmp_path / "array.npy", np.zeros(2))
    for name in ("cut.npz", "text.npz", "empty.npz", "array.npy"):
        with pytest.raises(UserError, match=f"{re.escape(name)} is not a file of"):
            Maps(tmp_path / name)
    np.savez(tmp_path / "other.npz", weights=np.zeros(2))
    with pytest.raises(UserError, match=r"other\.npz has no attention maps"):
        Maps(tmp_path / "other.npz")


FAULTS = {
    "0/encoder_self": [
        (lambda weights: weights.__setitem__((1, 2, 3, 4), np.nan), "encoder_self layer 1 head 2 .*nan"),
        (lambda weights: weights.__setitem__((1, 2, 3, 4), np.inf), "encoder_self layer 1 head 2 .*inf"),
        (lambda weights: weights.__setitem__((1, 2, 3, 4), -0.25), "encoder_self layer 1 head 2 .*-0.25"),
        (lambda weights: weights.__imul__(np.float32(1.01)), "encoder_self layer 0 head 0, query 0, .*1.01"),
        (lambda weights: weights.__setitem__((1, 2, 3), 0), "encoder_self layer 1 head 2, query 3, .* 0,"),
        (lambda weights: weights.astype(int), "encoder_self .*int"),
        (lambda weights: weights.astype(np.complex64), "encoder_self .*complex"),
        (lambda weights: weights[0], r"encoder_self .*\(3, 5, 5\)"),
        (lambda weights: weights[:, :, :4], r"encoder_self .*\(2, 3, 4, 5\)"),
        (lambda weights: weights[:0], r"encoder_self .*\(0, 3, 5, 5\)"),
        (lambda weights: weights[:, :2], r"encoder_self .*\(2, 3\)"),
    ],
    "1/decoder_context": [
        (lambda weights: weights[:, :2], "sentence 1.*decoder_context 2×2"),
        (lambda weights: weights[:1], "sentence 1.*decoder_context 1×3"),
        (lambda weights: weights.transpose(0, 1, 3, 2), r"sentence 1.*decoder_context .*\(2, 3, 2, 7\)"),
        (lambda weights: weights.__setitem__((0, 1, 6, 0), 7), "sentence 1.*decoder_context layer 0 head 1"),
    ],
    "1/target": [
        (lambda tokens: tokens[1:], "sentence 1.*7 tokens read, but 6"),
        (lambda tokens: np.arange(7), "sentence 1.*tokens"),
    ],
    "1/source": [
        (lambda tokens: tokens[1:], r"sentence 1.*\(L, H, 1, 1\)"),
        (lambda tokens: tokens.astype(object), "sentence 1.*1/source"),  # pickled
    ],
    "1/text": [(lambda text: np.array([1.0]), "sentence 1.*text")],
    "subset": [(lambda text: np.array(3), "subset")],
    "alpha/decoder_self": [
        (lambda alphas: alphas[:1], r"decoder_self .*\(1, 3\)"),
        (lambda alphas: alphas[:, :2], r"decoder_self .*\(2, 2\)"),
        (lambda alphas: alphas[0], r"decoder_self .*\(3,\)"),
        (lambda alphas: alphas.__setitem__((1, 2), 0.5), "decoder_self layer 1 head 2 .*0.5"),
        (lambda alphas: alphas.__setitem__((1, 2), np.nan), "decoder_self layer 1 head 2 .*nan"),
        (lambda alphas: alphas.__setitem__((1, 2), 1e9), "decoder_self layer 1 head 2 .*1e\\+09"),
        (lambda alphas: alphas.astype(np.str_), "decoder_self .*<U"),
    ],
    "row_sums/decoder_self": [(lambda kind: np.array("two"), "decoder_self .*'two'")],
}


@pytest.mark.parametrize(
    ("array", "change", "reason"), [(array, *fault) for array, faults in FAULTS.items() for fault in faults]
)
def test_errors_in_maps_are_named(tmp_path, array, change, reason):
    path = tmp_path / "maps.npz"
    alphas = {name: [[1.5] * 3] * 2 for name in ATTENTION_TYPES}
    sums = dict.fromkeys(ATTENTION_TYPES, "one")
    sentences = [sentence(5, 4, seed=1), sentence(2, 7, seed=2, text="Ein Satz.")]
    write_maps(path, sentences, corpus="toy", subset="test", alphas=alphas, row_sums=sums)
    arrays = dict(np.load(path))
    np.savez_compressed(path, **arrays)
    assert len(list(Maps(path))) == 2
    found = change(arrays[array])
    arrays[array] = arrays[array] if found is None else found
    np.savez(path, **arrays)
    with pytest.raises(UserError, match=rf"maps\.npz .*{reason}"):
        list(Maps(path))


def test_arrays_too_many_or_too_few_are_named(tmp_path):
    path = tmp_path / "maps.npz"
    write_maps(path)
    arrays = dict(np.load(path))
    for name in ("0/encoder", "alpha/encoder", "00/source", "colour"):
        np.savez(path, **arrays, **{name: arrays["0/source"]})
        with pytest.raises(UserError, match=rf"maps\.npz .*{name}"):
            Maps(path)
    np.savez(path, **{name: each for name, each in arrays.items() if name != "0/target"})
    with pytest.raises(UserError, match=r"maps\.npz has a sentence 0, but no array 0/target"):
        Maps(path)[0]
    np.savez(path, **arrays)
    with zipfile.ZipFile(path, "a") as archive, pytest.warns(UserWarning, match="Duplicate"):
        archive.writestr("0/source.npy", archive.read("0/target.npy"))
    with pytest.raises(UserError, match=r"maps\.npz .*twice"):
        Maps(path)


def test_weights_of_other_normalizers(tmp_path):
    """ReLA's rows sum to anything, those of fixed patterns may be empty; earlier versions call both α = 1."""

    def accepted(factor: float, alpha: float | None, sums: str | None) -> bool:
        whole = sentence()
        weights = {**whole.weights, "encoder_self": whole.weights["encoder_self"] * np.float32(factor)}
        maps = SentenceMaps(**{**vars(whole), "weights": weights})
        more = {"alphas": {"encoder_self": [[alpha] * 3] * 2}} if alpha else {}
        more |= {"row_sums": {"encoder_self": sums}} if sums else {}
        path = tmp_path / "maps.npz"
        write_maps(path, [whole])
        arrays = {**np.load(path), "0/encoder_self": weights["encoder_self"]}
        arrays.update({f"alpha/{name}": np.array(each) for name, each in more.get("alphas", {}).items()})
        arrays.update({f"row_sums/{name}": np.array(each) for name, each in more.get("row_sums", {}).items()})
        np.savez(path, **arrays)
        read = written = True
        try:
            Maps(path)[0]
        except UserError:
            read = False
        try:
            write_maps(path, [maps], **more)
        except ValueError:
            written = False
        assert read == written, "what is written is read"
        return read

    for alpha in (None, 1.0, 1.5):
        assert accepted(4, alpha, "any") and accepted(0, alpha, "any") and accepted(1, alpha, "any")
        assert accepted(0, alpha, "zero or one") and not accepted(4, alpha, "zero or one")
        assert not accepted(0, alpha, "one") and accepted(1, alpha, "one")
        assert accepted(4, alpha, None) == accepted(0, alpha, None) == (alpha == 1)


def test_bertviz_accepts_the_maps():
    """bertviz 1.4 builds its encoder-decoder views from them, with our numbers."""
    bertviz = pytest.importorskip("bertviz", reason="bertviz is not installed")
    maps = sentence(5, 4)
    for view in (bertviz.model_view, bertviz.head_view):
        html = view(**bertviz_arguments(maps), html_action="return").data
        start = html.index("const params = ") + len("const params = ")
        shown = json.JSONDecoder().raw_decode(html[start:])[0]["attention"]
        assert [each["name"] for each in shown] == ["Encoder", "Decoder", "Cross"]
        for each, name in zip(shown, ATTENTION_TYPES):
            assert np.allclose(each["attn"], maps.weights[name], atol=1e-7)
            assert [token.strip() for token in each["left_text"]] == [
                token.replace("▁", "") for token in maps.queries(name)
            ]
            assert len(each["right_text"]) == len(maps.keys(name))
