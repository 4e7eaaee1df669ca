import gzip
import io
import stat
import tarfile
import tracemalloc
import zipfile

import pytest

from user_dir import bounded
from user_dir.corpora.archives import extract, is_archive, split_name
from user_dir.errors import UserError

FILES = {"dev/a.en": b"one\n" * 5000, "dev/b.en": b"two\n", "dev/sub/a.en": b"three\n"}


def make_tar(path, files=FILES, mode="w:gz", links=()):
    with tarfile.open(path, mode) as archive:
        for name, data in files.items():
            entry = tarfile.TarInfo(name)
            entry.size = len(data)
            archive.addfile(entry, io.BytesIO(data))
        for name, kind in links:
            entry = tarfile.TarInfo(name)
            entry.type, entry.linkname = kind, "/etc/passwd"
            archive.addfile(entry)
    return path


def make_zip(path, files=FILES):
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, data in files.items():
            archive.writestr(name, data)
    return path


@pytest.mark.parametrize(
    ("name", "parts"),
    [
        ("dev.tgz/dev/a.en", ("dev.tgz", "dev/a.en")),
        ("2017/de/de-en.tgz/de-en/a.xml", ("2017/de/de-en.tgz", "de-en/a.xml")),
        ("kftt-data-1.0.tar.gz/kftt-data-1.0/a", ("kftt-data-1.0.tar.gz", "kftt-data-1.0/a")),
        ("en-ro.txt.zip/SETIMES.en-ro.en", ("en-ro.txt.zip", "SETIMES.en-ro.en")),
        ("train.de.gz", ("train.de.gz", None)),
        ("dev.tgz", ("dev.tgz", None)),
    ],
)
def test_names_of_members(name, parts):
    assert split_name(name) == parts


def test_archives_are_recognised_by_name():
    assert all(map(is_archive, ["a.tgz", "a.tar.gz", "a.zip", "a.tar.bz2", "a.tar.xz", "a.tar"]))
    assert not any(map(is_archive, ["a.gz", "train.de", "a.tmx.gz", "atgz", "a.sgm"]))


@pytest.mark.parametrize("mode", ["w:gz", "w:bz2", "w:xz", "w", "zip"])
def test_only_requested_members_are_extracted(tmp_path, mode):
    """Even if the name implies another kind of archive."""
    path = tmp_path / "x.tgz"
    make_zip(path) if mode == "zip" else make_tar(path, mode=mode)
    extract(path, ["dev/a.en", "dev/sub/a.en"], tmp_path / "out")
    found = {p.relative_to(tmp_path / "out").as_posix() for p in (tmp_path / "out").rglob("*") if p.is_file()}
    assert found == {"dev/a.en", "dev/sub/a.en"}
    assert all((tmp_path / "out" / name).read_bytes() == FILES[name] for name in found)


def test_a_leading_dot_is_not_part_of_a_name(tmp_path):
    make_tar(tmp_path / "x.tgz", {"./a": b"1"})
    extract(tmp_path / "x.tgz", ["a"], tmp_path / "out")
    assert (tmp_path / "out" / "a").read_bytes() == b"1"


@pytest.mark.parametrize("make", [make_tar, make_zip])
def test_a_missing_member_is_reported_with_similar_names(tmp_path, make):
    path = make(tmp_path / "x.tgz")
    with pytest.raises(UserError, match=r"x\.tgz has no member dev/c\.en; similar members are dev/[ab]\.en"):
        extract(path, ["dev/c.en"], tmp_path / "out")


@pytest.mark.parametrize("make", [make_tar, make_zip])
@pytest.mark.parametrize("share", [0.01, 0.3, 0.6, 0.95])
def test_a_truncated_archive(tmp_path, make, share):
    files = {**FILES, "noise": bytes(hash((i, "x")) % 256 for i in range(50_000))}
    path = make(tmp_path / "x.tgz", files)
    data = path.read_bytes()
    path.write_bytes(data[: int(len(data) * share)])
    with pytest.raises(UserError, match=r"x\.tgz is incomplete or corrupt") as caught:
        extract(path, ["dev/a.en"], tmp_path / "out")
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("make", [make_tar, make_zip])
@pytest.mark.parametrize("name", ["../evil", "dev/../../evil", "/tmp/evil", "..\\evil", "C:evil"])
def test_names_that_leave_the_folder_are_refused(tmp_path, make, name):
    path = make(tmp_path / "in.tgz", {name: b"evil", **FILES})
    with pytest.raises(UserError, match="a path outside its folder"):
        extract(path, ["dev/a.en"], tmp_path / "deep" / "out")
    assert not list(tmp_path.rglob("evil"))


@pytest.mark.parametrize("kind", [tarfile.SYMTYPE, tarfile.LNKTYPE, tarfile.DIRTYPE, tarfile.FIFOTYPE])
def test_links_in_place_of_members_are_refused(tmp_path, kind):
    path = make_tar(tmp_path / "x.tgz", links=[("dev/link", kind)])
    with pytest.raises(UserError, match="dev/link is not a regular file"):
        extract(path, ["dev/link"], tmp_path / "out")


@pytest.mark.parametrize(
    "headers",
    [
        *({"GNU.sparse.map": value} for value in ("a,b", "1", "", f"0,{'9' * 5000}")),
        *({"GNU.sparse.size": value} for value in ("x", "-1", "9" * 5000, str(1 << 40))),
        *({"GNU.sparse.major": "1", "GNU.sparse.minor": "0", "GNU.sparse.realsize": each} for each in "x1"),
        *({"GNU.sparse.map": "0,1", "GNU.sparse.size": value} for value in ("x", str(1 << 40))),
        *({"size": value} for value in ("-5", "9" * 30)),
    ],
)
@pytest.mark.parametrize(
    "content", [b"", b"x\n" * 600, b"3\n0\n1\n" + bytes(1024), b"99999\n" + b"1\n" * 5000]
)
def test_malformed_headers(tmp_path, headers, content):
    """Including sparse files, whose header can claim any size: 2^40 bytes must not be written."""
    with tarfile.open(tmp_path / "x.tar", "w", format=tarfile.PAX_FORMAT) as archive:
        entry = tarfile.TarInfo("a")
        entry.size, entry.pax_headers = len(content), headers
        archive.addfile(entry, io.BytesIO(content))
    with pytest.raises(UserError, match=r"x\.tar") as caught:
        extract(tmp_path / "x.tar", ["a"], tmp_path / "out")
    assert "\n" not in str(caught.value)


def bytes_of_headers(kind: bytes, length: int) -> bytes:
    """A tar whose member has a header of so many bytes."""
    header = tarfile.TarInfo("././@LongLink")
    header.type, header.size = kind, length
    content = (
        b"x" * length
        if kind == tarfile.GNUTYPE_LONGNAME
        else f"{length} comment=".encode().ljust(length, b"x")
    )
    member = tarfile.TarInfo("a")
    return header.tobuf(tarfile.GNU_FORMAT) + content + bytes(-length % 512) + member.tobuf() + bytes(1024)


@pytest.mark.parametrize(
    "kind", [tarfile.GNUTYPE_LONGNAME, tarfile.GNUTYPE_LONGLINK, tarfile.XHDTYPE, tarfile.XGLTYPE]
)
@pytest.mark.parametrize("pack", [gzip.compress, bytes])
def test_a_giant_header_is_refused_before_it_is_read(tmp_path, kind, pack):
    path = tmp_path / "x.tgz"
    path.write_bytes(pack(bytes_of_headers(kind, 8 << 20)))
    tracemalloc.start()
    with pytest.raises(UserError, match=r"x\.tgz has a header of more than 1,048,576 bytes"):
        extract(path, ["a"], tmp_path / "out")
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 6 << 20
    path.write_bytes(pack(bytes_of_headers(kind, 2000)))
    with pytest.raises(UserError, match="has no member b"):
        extract(path, ["b"], tmp_path / "out")


def test_many_members_do_not_fill_the_memory(tmp_path):
    make_tar(tmp_path / "x.tgz", {**{f"empty{i}": b"" for i in range(20_000)}, "a": b"1"})
    extract(tmp_path / "x.tgz", ["a"], tmp_path / "out")  # Python's table of names may grow, by megabytes
    tracemalloc.start()
    extract(tmp_path / "x.tgz", ["a"], tmp_path / "out")
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 8 << 20
    assert (tmp_path / "out" / "a").read_bytes() == b"1"


@pytest.mark.parametrize("mode", ["w:gz", "w:bz2", "w:xz", "zip"])
def test_what_unpacks_to_too_much_is_refused(tmp_path, monkeypatch, mode):
    monkeypatch.setattr(bounded, "MIN_EXPANDED", 1 << 20)
    files = {"a": b"\n" * (3 << 20)}
    path = tmp_path / "x.tgz"
    make_zip(path, files) if mode == "zip" else make_tar(path, files, mode)
    with pytest.raises(UserError, match=r"x\.tgz.* unpacks to more than 1 MiB"):
        extract(path, ["a"], tmp_path / "out")
    assert sum(each.stat().st_size for each in (tmp_path / "out").rglob("*") if each.is_file()) <= 1 << 20


def damaged(path):
    make_zip(path)
    data = bytearray(path.read_bytes())
    data[45] ^= 255
    path.write_bytes(data)


def with_a_link(path):
    entry = zipfile.ZipInfo("a")
    entry.external_attr = (stat.S_IFLNK | 0o777) << 16
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr(entry, "/etc/passwd")


def packed_unusually(path):
    with zipfile.ZipFile(path, "w", zipfile.ZIP_LZMA) as archive:
        archive.writestr("a", b"1")


@pytest.mark.parametrize(
    ("make", "complaint"),
    [
        (lambda path: path.write_text("<html>Sign in to download</html>"), "is incomplete or corrupt"),
        (damaged, "is incomplete or corrupt"),
        (with_a_link, "a is not a regular file"),
        (packed_unusually, "unusual method"),
        (lambda path: make_zip(path, {"a": b"1", "a/b": b"2"}), "cannot extract"),
    ],
)
def test_odd_archives_are_refused(tmp_path, make, complaint):
    path = tmp_path / "x.tgz"
    make(path)
    wanted = ["a", "a/b", "dev/a.en"]
    with pytest.raises(UserError, match=complaint):
        extract(path, wanted, tmp_path / "out")
