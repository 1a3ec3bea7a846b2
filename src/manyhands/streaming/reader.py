"""A stream's messages in blocks of a fixed number, read and parsed ahead by a thread of their own.

A block is cut by how many messages it has, and never by when they came: the same messages make the same
blocks, however they were read. The queue is short, so a stream is read no faster than it is learnt.
"""

import queue
import threading
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager

from manyhands.data.messages import MessageParser, ParsedMessages
from manyhands.data.streams.stream import Messages, Position, Stream, open_stream
from manyhands.streaming.settings import StreamingSettings

BLOCKS_AHEAD = 4
WAIT_SECONDS = 0.25


class End:
    """There will be no more blocks."""


class BlockReader:
    """``next(seconds)`` gives the next block, ``None`` if it has not come by then, or ``End``.

    At most ``most`` messages are read, if given; then, and at the end of the stream, a block may be shorter.
    """

    def __init__(
        self,
        url: str,
        position: Position | None,
        parser: MessageParser,
        settings: StreamingSettings,
        most: int | None,
    ) -> None:
        self._open: Callable[[], Stream] = lambda: open_stream(url, position, settings)
        self._parser, self._size, self._most = parser, settings.block_messages, most
        self._queue: queue.Queue[ParsedMessages | type[End] | BaseException] = queue.Queue(BLOCKS_AHEAD)
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="stream reader", daemon=True)

    @contextmanager
    def reading(self) -> Iterator["BlockReader"]:
        self._thread.start()
        try:
            yield self
        finally:
            self._stopping.set()
            self._thread.join()

    def next(self, seconds: float) -> ParsedMessages | type[End] | None:
        try:
            found = self._queue.get(timeout=seconds)
        except queue.Empty:
            return None
        if isinstance(found, BaseException):
            raise found
        return found

    def _run(self) -> None:
        try:
            with closing(self._open()) as stream:
                for block in self._blocks(stream):
                    self._put(self._parser.parse(block))
            self._put(End)
        except BaseException as error:  # whoever takes blocks is told of it
            self._put(error)

    def _put(self, item: ParsedMessages | type[End] | BaseException) -> None:
        while not self._stopping.is_set():
            try:
                self._queue.put(item, timeout=WAIT_SECONDS)
                return
            except queue.Full:
                continue

    def _blocks(self, stream: Stream) -> Iterator[Messages]:
        texts: list[bytes] = []
        places: list[str] = []
        rejected: dict[int, str] = {}
        position: Position = {}
        left = self._most
        while not self._stopping.is_set() and left != 0:
            room = self._size - len(texts)
            found = stream.read(room if left is None else min(room, left), WAIT_SECONDS)
            if found is None:
                break
            if not found.texts:
                continue
            rejected |= {len(texts) + number: reason for number, reason in found.rejected.items()}
            texts += found.texts
            places += found.places
            position = found.position
            left = None if left is None else left - len(found.texts)
            if len(texts) == self._size:
                yield Messages(texts, places, position, rejected)
                texts, places, rejected = [], [], {}
        if texts and not self._stopping.is_set():
            yield Messages(texts, places, position, rejected)
