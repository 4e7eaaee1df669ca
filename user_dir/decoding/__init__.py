"""Beam search with fairseq's results: in C++ on a CPU, from CUDA graphs on a GPU, otherwise fairseq's own."""
