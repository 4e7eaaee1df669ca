import gzip
from collections import Counter

import pytest

from user_dir.corpora.description import read_description
from user_dir.corpora.readers.columns import Table
from user_dir.corpora.readers.pairs import read_pairs
from user_dir.corpora.split_sources import sources_of
from user_dir.errors import UserError

PAIR = ("de", "en")


def read(path, table=None, left_out=None):
    return list(read_pairs(path, path, PAIR, "columns", left_out, table=table))


@pytest.mark.parametrize(("separator", "columns"), [("\t", (2, 1)), (" ||| ", (2, 1)), ("\t", (4, 1))])
@pytest.mark.parametrize("packed", [False, True])
def test_columns(tmp_path, separator, columns, packed):
    rows = [["Go.", "Geh.", 'CC "BY', "Los!"], ['He said: "no', " Er sagte „nein“ ", "", "Nein\u2028doch"]]
    text = "\ufeff" + "\r\n".join(separator.join(row) for row in rows) + "\r\n\n"
    path = tmp_path / ("deu.txt.gz" if packed else "deu.txt")
    path.write_bytes(gzip.compress(text.encode()) if packed else text.encode())
    left_out = Counter()
    found = read(path, Table(columns, separator), left_out)
    assert found == [tuple(row[number - 1].strip() for number in columns) for row in rows]
    assert left_out == {"a line was blank": 1}


def test_a_line_with_too_few_columns_is_named(tmp_path):
    path = tmp_path / "deu.txt"
    path.write_text("Go.\tGeh.\tx\nStop.\n")
    with pytest.raises(UserError, match=r"deu\.txt, line 2: .* 1 columns"):
        read(path, Table((2, 1)))


@pytest.mark.parametrize(
    "train",
    [
        "{file: a.txt, format: columns}",
        "{file: a.txt, columns: {de: 1, en: 2}}",
        "{file: a.txt, format: columns, columns: {de: 1}}",
        "{file: a.txt, format: columns, columns: {de: 1, en: 1}}",
        "{file: a.txt, format: columns, columns: {de: 0, en: 1}}",
        "{file: a.txt, format: columns, columns: {de: yes, en: 2}}",
        "{file: a.txt, format: columns, columns: [1, 2]}",
        "{file: a.txt, format: columns, columns: 2}",
        "{file: a.txt, format: columns, columns: {de: 1, en: 2}, separator: ''}",
        "{file: a.txt, format: columns, columns: {de: 1, en: 2}, separator: 5}",
        "{file: 'a.{language}', format: columns, columns: {de: 1, en: 2}}",
    ],
)
def test_settings_that_name_no_columns(tmp_path, train):
    path = tmp_path / "corpus.yaml"
    path.write_text(f"title: x\nlanguages: [de, en]\nsplits:\n  train: {train}\n  valid: {{held_out: 2}}\n")
    with pytest.raises(UserError, match=r"corpus\.yaml, line [34]: .*(columns|separator)"):
        sources_of(read_description(path), "train")
