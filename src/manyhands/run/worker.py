"""``python -m manyhands.run.worker call.json``: what each process of a crew that ``train`` starts runs."""

import json
import os
import signal
import sys
from pathlib import Path

from manyhands.engines.crew import FOLDER, RESTARTS, Reporter, end_with_parent, show_name
from manyhands.errors import ManyhandsError, ResumableError, SpentError
from manyhands.records import Silent
from manyhands.run.train import train
from manyhands.spread.node import LostWorkerError


def main() -> int:
    """Train as one of the crew. Who started it is told of errors; only those worth a restart fail."""
    end_with_parent(signal.SIGKILL)
    show_name(f"worker {os.environ['RANK']}")
    call = json.loads(Path(sys.argv[1]).read_text("utf-8"))
    reporter = Reporter(Path(os.environ[FOLDER]), int(os.environ.get(RESTARTS, "0")))
    first = os.environ["LOCAL_RANK"] == "0"
    try:
        trained = train(**call, progress=reporter if first else Silent())
    except LostWorkerError as error:
        reporter.lost(str(error))
        sys.stderr.write(f"manyhands: {error}\n")
        sys.stderr.flush()
        os._exit(1)  # what was waiting for the lost one may never end
    except SpentError as error:
        if first:  # it has kept the checkpoint when it says so
            reporter.failed(error.exit_code, str(error))
        return 0
    except ResumableError:  # asked to leave: by who started the crew, or because another one joins
        return 0
    except ManyhandsError as error:
        reporter.failed(error.exit_code, str(error))
        return 0
    if first:
        reporter.done(wrote=trained is not None)
    return 0


if __name__ == "__main__":
    sys.exit(main())
