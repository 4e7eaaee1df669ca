"""Zip archives of which PyTorch would read something else than was checked."""

import struct
import zipfile
import zlib
from pathlib import Path

import pytest
import torch
from helpers import checkpoint_state

from user_dir.errors import UserError
from user_dir.guards.checkpoint_files import read_checkpoint


def central(entry: zipfile.ZipInfo, method: int, packed: int) -> bytes:
    """An entry of a zip's list of contents."""
    name = entry.filename.encode()
    fields = 20, 20, 0, method, 0, 0x21, entry.CRC, packed, entry.file_size, len(name), *[0] * 5
    return struct.pack("<4s6H3I5H2I", b"PK\1\2", *fields, entry.header_offset) + name


def forged(path: Path, out: Path, lists: list[str], deflated: bool, repeated: int = 1, **end) -> None:
    """A zip with the records of ``path`` and the given lists of contents, "honest" or "stored" ones.

    Args:
        deflated: compress data.pkl; a list that is "stored" denies it.
        repeated: name each record so often.
        end: what to change in the record at the end.
    """
    body, entries = b"", []
    with zipfile.ZipFile(path) as archive:
        for entry in archive.infolist():
            content, method = archive.read(entry), 0
            if deflated and entry.filename.endswith("data.pkl"):
                packer = zlib.compressobj(9, zlib.DEFLATED, -15)
                content, method = packer.compress(content) + packer.flush(), 8
            entry.header_offset, name = len(body), entry.filename.encode()
            sizes = entry.CRC, len(content), entry.file_size, len(name), 0
            body += struct.pack("<4s5H3I2H", b"PK\3\4", 20, 0, method, 0, 0x21, *sizes) + name + content
            entries += [(entry, method, len(content))] * repeated
    tables = [
        b"".join(central(each, 0 if kind == "stored" else method, size) for each, method, size in entries)
        for kind in lists
    ]
    offset = end.get("offset", len(body))
    count = end.get("count", len(entries))
    last = struct.pack("<4s4H2IH", b"PK\5\6", 0, 0, count, count, len(tables[0]), offset, 0)
    out.write_bytes(body + b"".join(tables) + last)


@pytest.fixture
def written(tmp_path) -> Path:
    # So large a record that a list of many entries is small beside it.
    torch.save(checkpoint_state(extra_state={"long": torch.ones(1000)}), tmp_path / "a.pt")
    return tmp_path / "a.pt"


def test_an_archive_with_one_list_of_contents_is_read(written, tmp_path):
    """Otherwise the next test would refuse them for another reason."""
    forged(written, tmp_path / "b.pt", ["honest"], False)
    assert torch.equal(read_checkpoint(tmp_path / "b.pt")["model"]["w"], torch.ones(2))


@pytest.mark.parametrize(
    ("given", "reason"),
    [
        ({"lists": ["honest", "stored"], "deflated": True}, "its list of contents is not as PyTorch"),
        ({"lists": ["stored"], "deflated": True}, "it is compressed"),
        ({"lists": ["honest"], "deflated": True}, "it is compressed"),
        ({"lists": ["honest"], "deflated": False, "count": 1}, "its list of contents is not as PyTorch"),
        ({"lists": ["honest"], "deflated": False, "offset": 30}, "its list of contents is not as PyTorch"),
        ({"lists": ["honest"], "deflated": False, "repeated": 900}, "it claims to hold"),
    ],
)
def test_an_archive_that_could_unpack_to_more_than_its_size_is_refused(written, tmp_path, given, reason):
    forged(written, tmp_path / "b.pt", **given)
    with pytest.raises(UserError, match=rf"b\.pt is refused: {reason}"):
        read_checkpoint(tmp_path / "b.pt")


def test_a_zip64_archive_with_two_lists_of_contents_is_refused(written, tmp_path):
    content = written.read_bytes()
    length, offset = struct.unpack("<40xQQ", content[-98:-42])
    assert content[-98:-94] == b"PK\x06\x06" and offset + length == len(content) - 98
    again = content[offset : offset + length]
    end = content[-98:-42] + content[-42:-34] + struct.pack("<QL", len(content) - 98 + length, 1)
    (tmp_path / "b.pt").write_bytes(content[:-98] + again + end + content[-22:])
    assert torch.load(tmp_path / "b.pt", weights_only=True), "torch does not read it anyhow"
    with pytest.raises(UserError, match=r"b\.pt is refused: its list of contents"):
        read_checkpoint(tmp_path / "b.pt")


def test_an_archive_that_python_does_not_take_for_one_is_checked(written, tmp_path):
    """Python's zipfile gives up at a second signature of the end, torch does not."""
    forged(written, tmp_path / "b.pt", ["honest"], True)
    content = (tmp_path / "b.pt").read_bytes()
    (tmp_path / "b.pt").write_bytes(content[:-2] + struct.pack("<H", 8) + b"PK\5\6" + bytes(4))
    assert not zipfile.is_zipfile(tmp_path / "b.pt")
    with pytest.raises(UserError, match=r"b\.pt is (not a checkpoint|refused)"):
        read_checkpoint(tmp_path / "b.pt")
