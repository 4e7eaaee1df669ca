"""The command ``average`` of the package, from a checkout."""

from _checkout import run

if __name__ == "__main__":
    run("average")
