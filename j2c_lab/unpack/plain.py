"""The plain bytes of a `.tar.zst` as they come, within bounds."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from j2c_lab.errors import FormatError
from j2c_lab.formats import tar
from j2c_lab.formats.zstd import DecompressionParameter, ZstdDecompressor, ZstdError

#: Bytes decompressed at a time.
_STEP = 1 << 17
#: 128 MiB, the most that zstd itself takes without being asked: bounds what a frame can make us
#: allocate.
_WINDOW_LOG = 27
_DAMAGED = "the layer is damaged: it is no valid zstd archive"
_TRUNCATED = "the layer is damaged: it ends too early"


class PlainStream:
    """Reads one or more zstd frames; memory is bounded by the window and one step.

    Parameters
    ----------
    pieces : iterable of bytes
        The compressed bytes.
    limit : int
        Most compressed bytes to take: an endless stream of empty frames has no other end.
    """

    def __init__(self, pieces: Iterable[bytes], limit: int) -> None:
        self._pieces = iter(pieces)
        self._left = limit
        self._frame: ZstdDecompressor | None = None
        self._view = memoryview(b"")
        self._at = 0

    def take(self, size: int) -> memoryview | bytes:
        """Return exactly `size` bytes; raises `FormatError` when there are fewer."""
        end = self._at + size
        if end <= len(self._view):
            data = self._view[self._at : end]
            self._at = end
            return data
        return b"".join(self.pieces(size))

    def pieces(self, size: int) -> Iterator[memoryview]:
        """Yield exactly `size` bytes in pieces; raises `FormatError` when there are fewer."""
        while size:
            if self._at == len(self._view) and not self._fill():
                raise FormatError(_TRUNCATED)
            piece = self._view[self._at : self._at + size]
            self._at += len(piece)
            size -= len(piece)
            yield piece

    def block(self) -> bytes | None:
        """Return the next tar block, or None at the end of the stream."""
        if self._at == len(self._view) and not self._fill():
            return None
        return bytes(self.take(tar.BLOCK))

    def skip_zeros(self, size: int) -> None:
        """Pass over `size` bytes; raises `FormatError` unless they are zeros."""
        if size and self.take(size) != bytes(size):
            raise FormatError("the layer is damaged: data where there should be padding")

    def _fill(self) -> bool:
        """Decompress the next step; False at the end of the last frame."""
        while True:
            data = b""
            if self._frame is None or self._frame.eof:
                data = self._frame.unused_data if self._frame else b""
                data = data or self._next()
                if not data:
                    return False
                self._frame = ZstdDecompressor(
                    options={DecompressionParameter.window_log_max: _WINDOW_LOG}
                )
            elif self._frame.needs_input:
                data = self._next()
                if not data:
                    raise FormatError(_TRUNCATED)
            try:
                plain = self._frame.decompress(data, _STEP)
            except ZstdError as error:
                raise FormatError(f"{_DAMAGED} ({error})") from None
            if plain:
                self._view, self._at = memoryview(plain), 0
                return True

    def _next(self) -> bytes:
        for piece in self._pieces:
            self._left -= len(piece)
            if self._left < 0:
                raise FormatError("the layer is larger than the manifest says")
            if piece:
                return piece
        return b""
