"""``single``: one process, whose threads learn side by side in the same memory, without locks (Hogwild)."""

from manyhands.records import Progress
from manyhands.spread.spread import Spread
from manyhands.text.labelled_rows import LabelledRows
from manyhands.training.exchange import Alone
from manyhands.training.job import Job, Outcome
from manyhands.training.learn import Watch, learn


class Single(Spread):
    summary = "threads of this process"

    def run(
        self,
        job: Job,
        examples: LabelledRows,
        valid: LabelledRows | None,
        progress: Progress,
        watch: Watch | None = None,
    ) -> Outcome:
        return learn(job, examples, valid, Alone(), progress, watch)
