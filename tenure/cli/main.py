"""The entry point of the `tenure` command: what every command has in common, above all when it fails.

Exit status: 0 ok; 1 refused or failed, one line on stderr says why; 2 usage; 130 on Ctrl-C; 141 on a broken pipe.
"""

import gc
import os
import sys
from collections.abc import Sequence

import typer

from tenure.domain.refusal import Refusal
from tenure.sdk.errors import ServerError

INTERRUPTED, BROKEN_PIPE = 130, 141
GARBAGE_AT = 100_000
"""Nothing that is imported becomes garbage: looking for it costs a tenth of the time a submission takes."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command and return its exit status; `arguments` default to those of the process."""
    gc.set_threshold(GARBAGE_AT)
    os.environ.setdefault("GRPC_VERBOSITY", "NONE")  # trouble is said once, in words, by the command
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="backslashreplace")
    try:
        status = _run(list(sys.argv[1:] if arguments is None else arguments))
        sys.stdout.flush()
    except BrokenPipeError:
        status = BROKEN_PIPE
    if status == BROKEN_PIPE:
        _abandon_stdout()
    return status


def _run(arguments: list[str]) -> int:
    from tenure.cli.commands import app

    command = typer.main.get_command(app)
    try:
        status = command.main(args=arguments, prog_name="tenure", standalone_mode=False)
    except SystemExit as leaving:  # typer's own answer to a broken pipe; completion ends like this, too
        if isinstance(leaving.__context__, BrokenPipeError):
            return BROKEN_PIPE
        raise
    except (KeyboardInterrupt, typer.Abort):
        return INTERRUPTED
    except typer.TyperException as error:
        return _show_usage_error(error)
    except (ServerError, Refusal) as refusal:
        return _say_refused(str(refusal))
    except UnicodeEncodeError as error:  # bytes of an argument, a variable or a directory that no text stands for
        return _say_refused(f"{error.object[:60]!a} is not UTF-8; what is submitted and shown has to be")
    except OSError as error:
        place = f"{error.filename}: " if error.filename else ""
        return _say_refused(f"{place}{error.strerror or error}")
    return status if isinstance(status, int) else 0


def _say_refused(message: str) -> int:
    from tenure.cli.terminal import clean

    print(f"tenure: {clean(' '.join(message.split()))}", file=sys.stderr)
    return 1


def _show_usage_error(error: typer.TyperException) -> int:
    message = error.format_message()
    context = getattr(error, "ctx", None)
    path = context.command_path if context is not None else "tenure"
    if message.strip():
        print(f"{path}: {' '.join(message.split())} (see {path} --help)", file=sys.stderr)
    return error.exit_code


def _abandon_stdout() -> None:
    """Nobody reads any more: keep the interpreter from complaining when it flushes at the end."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, sys.stdout.fileno())
