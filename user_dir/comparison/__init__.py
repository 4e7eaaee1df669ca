"""Several systems on one test set: their scores, and whether they differ by more than chance."""
