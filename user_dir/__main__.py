"""Print the folder to pass to fairseq: ``fairseq-train --user-dir "$(python -m adaptively_sparse)" …``."""

from pathlib import Path

if __name__ == "__main__":
    print(Path(__file__).resolve().parent)
