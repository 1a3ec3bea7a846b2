"""How a stream is learnt, whatever the model."""

from typing import Annotated

from pydantic import Field

from manyhands.data.streams.stream import StreamSettings
from manyhands.settings import Common


class StreamingSettings(StreamSettings):
    block_messages: Annotated[
        int,
        Field(
            ge=1,
            le=1 << 20,
            description="Messages that are counted and learnt together; of a slow stream, fewer are sooner.",
        ),
        Common(),
    ] = 256
    half_life: Annotated[
        float,
        Field(ge=1, allow_inf_nan=False, description="Messages after which earlier counts weigh half."),
        Common(),
    ] = 1_000_000
    snapshot_seconds: Annotated[float, Field(ge=0, description="Seconds between snapshots."), Common()] = 60.0
    snapshot_messages: Annotated[
        int | None, Field(ge=1, description="Also a snapshot after this many messages.")
    ] = None
    deterministic: Annotated[
        bool,
        Field(description="Reproducible: the same weights from the same messages. Trains on one thread."),
    ] = False

    def deciding(self) -> dict[str, float]:
        """What decides what comes out, and not only when it is kept."""
        return self.model_dump(include={"block_messages", "half_life", "max_message_bytes"})
