"""Start the command line: `fleet`, and `python -m fleet`."""

import importlib
import os
import signal

INTERRUPTED = 130


def run() -> None:
    """Load the program and run it; Ctrl-C while modules are loading ends it without a traceback."""
    by_default = signal.getsignal(signal.SIGINT) is signal.default_int_handler
    if by_default:
        signal.signal(signal.SIGINT, lambda *_: os._exit(INTERRUPTED))
    main = importlib.import_module("fleet.cli.main").main
    if by_default:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    main()


if __name__ == "__main__":
    run()
