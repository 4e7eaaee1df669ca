"""Print the table of normalizers of docs/options.md: ``python -m user_dir.attention.normalizers``."""

from . import NORMALIZERS


def main() -> None:
    """Print a Markdown table."""
    print("| `--attention-normalizer` | weights of the scores s = QKᵀ/√D | α | source |\n|---|---|---|---|")
    for name, normalizer in NORMALIZERS.items():
        alpha = "learned" if normalizer.alpha is None else f"{normalizer.alpha:g}"
        print(f"| `{name}` | {normalizer.equation} | {alpha} | {normalizer.source} |")


if __name__ == "__main__":
    main()
