"""Translation of splits, scoring of translations, and significance tests between systems."""
