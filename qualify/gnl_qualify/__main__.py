"""Run the exam room as `python -m gnl_qualify`."""

from gnl_qualify.cli import main

if __name__ == "__main__":
    main()
