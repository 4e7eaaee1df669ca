"""Weights in files that are not too large, and figures by layer."""

import pytest

from user_dir.benchmarks import paper_section
from user_dir.errors import UserError


@pytest.mark.parametrize("size, count", [(1, 1), (10, 1), (11, 2), (47, 5)])
def test_what_is_split_is_joined(size, count, tmp_path, monkeypatch):
    monkeypatch.setattr(paper_section, "LARGEST", 10)
    content = bytes(range(size))
    paper_section.split(content, tmp_path, "softmax")
    paper_section.split(b"other", tmp_path, "softmax_2")
    parts = sorted(tmp_path.glob("softmax.int8.*"))
    assert len(parts) == count and all(part.stat().st_size <= 10 for part in parts)
    paper_section.join(tmp_path, "softmax", tmp_path / "new" / "softmax.pt")
    assert (tmp_path / "new" / "softmax.pt").read_bytes() == content
    parts[-1].unlink()
    with pytest.raises(UserError, match=f"lacks softmax.int8.{count}-of-{count}" if count > 1 else "lacks"):
        paper_section.join(tmp_path, "softmax", tmp_path / "new" / "again.pt")
    assert not (tmp_path / "new" / "again.pt").exists()


def test_figures_by_layer():
    heads = [
        {
            "attention": kind,
            "layer": layer,
            "head": head,
            "alpha": 1 + head / 4,
            "density": (layer + head) / 4,
        }
        for kind in ("encoder_self", "decoder_self")
        for layer in range(2)
        for head in range(3)
    ]
    rows = paper_section.layers(heads)
    assert [(row["attention"], row["layer"]) for row in rows] == [
        (kind, layer) for kind in ("encoder_self", "decoder_self") for layer in (0, 1)
    ]
    assert [row["density_mean"] for row in rows] == [0.25, 0.5, 0.25, 0.5]
    assert [row["alpha_mean"] for row in rows] == [1.25] * 4
