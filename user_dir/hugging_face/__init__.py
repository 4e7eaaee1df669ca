"""Handing a trained model over: as a plain folder, and as a folder that Hugging Face's transformers loads."""
