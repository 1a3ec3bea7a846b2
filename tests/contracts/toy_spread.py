"""A spread in one file, by the recipe of CONTRIBUTING.md: one process that rests before it begins."""

import time
from typing import Annotated

from pydantic import Field

from manyhands.errors import UsageError
from manyhands.settings import Settings
from manyhands.spread.spread import Spread
from manyhands.training.exchange import Alone
from manyhands.training.learn import learn


class RestedSettings(Settings):
    rest_seconds: Annotated[float, Field(ge=0, le=10, description="How long to rest before training.")] = 0.0


class Rested(Spread):
    Settings = RestedSettings
    summary = "rests first"

    def check(self, job):
        if job.spread_settings.rest_seconds == 10:
            raise UsageError("--rest-seconds 10 is longer than anyone rests")

    def run(self, job, examples, valid, progress, watch=None):
        time.sleep(job.spread_settings.rest_seconds)
        return learn(job, examples, valid, Alone(), progress, watch)
