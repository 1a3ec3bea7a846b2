"""What can be chosen of a service: where it listens, and what it takes on before it says no."""

from typing import Annotated

from pydantic import Field

from manyhands.settings import Settings

Seconds = Annotated[float, Field(gt=0, le=86_400, allow_inf_nan=False)]


class ServeSettings(Settings):
    """Where the service is found, and by whom."""

    host: Annotated[
        str, Field(min_length=1, description="Address to listen on; 0.0.0.0 opens it to the network.")
    ] = "127.0.0.1"
    port: Annotated[int, Field(ge=0, le=65_535, description="Port to listen on; 0 takes a free one.")] = 8080
    token_file: Annotated[
        str | None,
        Field(description="File with a token that requests must carry, as a bearer token or a password."),
    ] = None
    name: Annotated[
        str | None,
        Field(
            pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,99}$",
            description="Name of the model in /v2/models; by default that of its folder.",
        ),
    ] = None
    reload_seconds: Annotated[
        float,
        Field(
            ge=0,
            le=86_400,
            allow_inf_nan=False,
            description="Seconds between looks for a new bundle in the same place; 0: only on SIGHUP.",
        ),
    ] = 1.0
    map_words: Annotated[
        int, Field(ge=1, le=20_000, description="Words on the map of word vectors, most frequent first.")
    ] = 1000


class LimitSettings(Settings):
    """What one request, and all of them together, may ask for."""

    max_body_bytes: Annotated[int, Field(ge=1, le=2**31, description="Largest body of a request.")] = 1 << 20
    max_texts: Annotated[int, Field(ge=1, le=2**20, description="Most texts or words in a request.")] = 1000
    max_characters: Annotated[int, Field(ge=1, le=2**28, description="Longest text.")] = 100_000
    max_requests: Annotated[
        int, Field(ge=1, le=2**20, description="Most requests under way; others are told to come back (503).")
    ] = 256
    max_requests_per_client: Annotated[
        int,
        Field(
            ge=0,
            le=2**20,
            description="Most requests under way from one address (429); 0: no limit of its own.",
        ),
    ] = 0
    max_connections: Annotated[int, Field(ge=1, le=2**20, description="Most open connections.")] = 1024
    queue_seconds: Annotated[
        Seconds,
        Field(description="Longest wait for the model; who would wait longer is told to come back (503)."),
    ] = 1.0
    batch_texts: Annotated[int, Field(ge=1, le=2**16, description="Most texts in one call of the model.")] = (
        256
    )
    request_seconds: Annotated[
        Seconds,
        Field(description="Longest time that a client may take to send a request or to read the answer."),
    ] = 20.0
    idle_seconds: Annotated[Seconds, Field(description="Longest time that a connection may stay idle.")] = (
        75.0
    )
    drain_seconds: Annotated[
        Seconds, Field(description="Longest time that requests under way are waited for at the end.")
    ] = 30.0
