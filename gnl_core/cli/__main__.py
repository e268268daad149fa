"""`python -m gnl_core.cli`: the program `gnl` where its script is not on the path."""

from gnl_core.cli import main

if __name__ == "__main__":
    main()
