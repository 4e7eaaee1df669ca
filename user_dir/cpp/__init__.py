"""C++ on a CPU, compiled where it is first used: vectors in registers, and how a file becomes a library."""
