"""A trained model as one file: with what preprocesses its input, a model card, and checksums of it all."""
