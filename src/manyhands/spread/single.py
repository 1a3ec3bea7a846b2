"""``single``: one process, whose threads learn side by side in the same memory, without locks."""

from manyhands.records import Progress
from manyhands.spread.job import Job, Outcome
from manyhands.spread.running import Watch, learn
from manyhands.text.lesson import Lesson
from manyhands.train.exchange import Alone


def run(
    job: Job, lesson: Lesson, valid: Lesson | None, progress: Progress, watch: Watch | None = None
) -> Outcome:
    return learn(job, lesson, valid, Alone(), progress, watch)
