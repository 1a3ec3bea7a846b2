"""What the workers of ``server`` share, whether they learn rows of files or pieces of a stream."""

from typing import Annotated

from pydantic import Field

from manyhands.engines.ray import RaySettings
from manyhands.settings import Common


class WorkerSettings(RaySettings):
    workers: Annotated[
        int,
        Field(ge=1, le=512, description="Worker processes, on all machines of Ray together."),
        Common("Worker processes."),
    ] = 2
    stall_seconds: Annotated[
        float, Field(ge=1, le=86_400, description="Replace a worker that is silent for this many seconds.")
    ] = 120.0


class StreamWorkerSettings(WorkerSettings):
    address: Annotated[
        str | None,
        Field(description="A running Ray of this machine: auto or host:6379; by default one starts here."),
    ] = None
    workers: Annotated[
        int,
        Field(ge=1, le=512, description="Worker processes, on the machine that reads the stream."),
        Common("Worker processes."),
    ] = 2
