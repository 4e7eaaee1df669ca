"""Translating splits of corpora, scoring the translations, and comparing the scores of several systems."""
