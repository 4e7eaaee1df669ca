"""Analysis of attention heads: captured attention, statistics, figures and reports."""
