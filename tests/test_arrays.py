"""Arrays of NPZ files are read as numpy writes them, and within limits."""

from __future__ import annotations

import io
import struct
import zipfile

import numpy as np
import pytest

from user_dir import arrays, bounded
from user_dir.arrays import Arrays


def written(path, **members):
    np.savez_compressed(path, **members)
    return Arrays(path)


def with_member(path, content: bytes, method=zipfile.ZIP_DEFLATED):
    with zipfile.ZipFile(path, "w", method) as archive:
        archive.writestr("a.npy", content)
    return Arrays(path)


def npy(shape, kind="<f4", content=b"") -> bytes:
    file = io.BytesIO()
    np.lib.format.write_array_header_1_0(file, {"descr": kind, "fortran_order": False, "shape": shape})
    return file.getvalue() + content


@pytest.mark.parametrize(
    "array",
    [
        np.arange(12, dtype=np.float32).reshape(3, 4),
        np.asfortranarray(np.arange(12.0).reshape(3, 4)),
        np.array(["a", "über", ""]),
        np.array("text"),
        np.array([], dtype=np.str_),
        np.zeros((0, 3)),
        np.array(1.5),
    ],
)
@pytest.mark.parametrize("save", [np.savez, np.savez_compressed])
def test_what_numpy_writes_is_read(tmp_path, array, save):
    save(tmp_path / "a.npz", a=array)
    found = Arrays(tmp_path / "a.npz")
    assert found.names == {"a"}
    np.testing.assert_array_equal(found.read("a"), array)
    assert found.read("a").dtype == array.dtype
    found.close()


@pytest.mark.parametrize(
    "content",
    [
        npy((4,), "<f4", bytes(15)),
        npy((4,), "<f4", bytes(17)),
        npy((1 << 40,)),
        npy((-1,)),
        npy((1 << 62,), "<V0"),
        npy((1 << 62,), "<U0"),
        npy((1, 1 << 62, 0), "<f4"),
        npy((1,), "<U2147483647"),
        npy((1,), "|O", bytes(8)),
        npy((1,))[:20],
        b"",
        b"text",
    ],
)
def test_headers_that_claim_something_else_are_refused(tmp_path, content):
    file = with_member(tmp_path / "a.npz", content)
    with pytest.raises(ValueError, match="array a"):
        file.read("a")


def test_a_large_array_is_refused_before_it_is_unpacked(tmp_path):
    file = written(tmp_path / "a.npz", a=np.zeros(1000, np.float32), b=np.zeros(10, np.float32))
    assert file.size("a") > 4000
    with pytest.raises(ValueError, match=r"array a has 4,\d+ bytes"):
        file.read("a", most=4000)
    assert file.read("b", most=4000).size == 10


def test_a_zip_that_claims_less_than_it_unpacks_to(tmp_path):
    path = tmp_path / "a.npz"
    with_member(path, npy((1000,), "<f4", bytes(4000))).close()
    content = path.read_bytes()
    place = content.rindex(b"PK\x01\x02") + 24  # its size in the list of contents
    path.write_bytes(content[:place] + struct.pack("<L", len(npy((10,))) + 40) + content[place + 4 :])
    with pytest.raises(ValueError, match="array a"):
        Arrays(path).read("a")


@pytest.mark.parametrize("method", [zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA])
def test_methods_of_compression_that_numpy_does_not_use(tmp_path, method):
    file = with_member(tmp_path / "a.npz", npy((1,), "<f4", bytes(4)), method)
    with pytest.raises(ValueError, match="compressed"):
        file.read("a")


def test_a_list_of_contents_that_is_too_long(tmp_path, monkeypatch):
    written(tmp_path / "a.npz", **{f"array{i}": np.zeros(1) for i in range(50)}).close()
    assert len(Arrays(tmp_path / "a.npz").names) == 50
    monkeypatch.setattr(bounded, "MAX_DIRECTORY", 2000)
    with pytest.raises(ValueError, match="2,000 bytes"):
        Arrays(tmp_path / "a.npz")


@pytest.mark.parametrize("content", [b"", b"text", b"PK\x05\x06" + bytes(18), b"PK\x05\x06" + b"\xff" * 18])
def test_what_is_no_zip(tmp_path, content):
    (tmp_path / "a.npz").write_bytes(content)
    if content.startswith(b"PK") and not any(content[4:]):
        assert not Arrays(tmp_path / "a.npz").names  # an empty zip
        return
    with pytest.raises(ValueError, match="not an NPZ"):
        Arrays(tmp_path / "a.npz")


def test_a_name_twice(tmp_path):
    with pytest.warns(UserWarning), zipfile.ZipFile(tmp_path / "a.npz", "w") as archive:
        for _ in range(2):
            archive.writestr("a.npy", b"")
    with pytest.raises(ValueError, match="twice"):
        Arrays(tmp_path / "a.npz")


def test_limits_leave_room_for_long_sentences():
    assert arrays.MAX_ARRAY > 6 * 8 * 1024 * 1024 * 4
