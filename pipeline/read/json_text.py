"""A JSON document as a moving window of text: one member of an object at a time, never the whole document.

The json module's own C scanner reads each value, so NaN, Infinity, whole numbers of any size and unpaired surrogates
come out as ``json.load`` gives them; this file only decides how much text has to be in the window.
"""

from __future__ import annotations

import codecs
import errno
import os
import re
import stat
from json import JSONDecodeError, JSONDecoder
from pathlib import Path
from typing import Any, BinaryIO, Final

_WINDOW: Final = 1 << 18  # bytes read at a time, doubled for a value that is longer
_NEAR_END: Final = 16  # an error this close to the end of the window may only mean that text is missing
_BOM: Final = b"\xef\xbb\xbf"
_DECODER: Final = JSONDecoder()
_SPACE: Final = re.compile(r"[ \t\n\r]*")
_NUMBER: Final = re.compile(r"[-+.eE0-9]*")
_BRACKET_OR_STRING: Final = re.compile(r'"[^"\\]*(?:\\.[^"\\]*)*("?)|[\[\]{}]', re.DOTALL)


class Broken(Exception):
    """The text stops being JSON; ``offset`` is the byte behind the last complete member."""

    def __init__(self, text: str, offset: int) -> None:
        super().__init__(text)
        self.offset = offset


class TooLarge(Exception):
    """A value that the json module refuses although it is JSON: nested too deep, or a number of thousands of digits."""


def load_value(text: str) -> Any:
    """The JSON value that ``text`` is.

    Raises
    ------
    JSONDecodeError
        If it is no JSON.
    TooLarge
        If the json module refuses it all the same.
    """
    try:
        return _DECODER.decode(text)
    except JSONDecodeError:
        raise
    except RecursionError:
        raise TooLarge("it is nested too deep") from None
    except ValueError as error:
        raise TooLarge(str(error)) from None


def open_regular(path: Path) -> BinaryIO:
    """Open a file for reading; never waits, whatever stands at the path.

    Parameters
    ----------
    path : Path
        The file.

    Raises
    ------
    IsADirectoryError
        If it is a folder.
    OSError
        If it is a pipe, a socket or a device, or cannot be opened; ``strerror`` says which.
    """
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    try:
        mode = os.fstat(descriptor).st_mode
        if stat.S_ISDIR(mode):
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), str(path))
        if not stat.S_ISREG(mode):
            raise OSError(errno.EINVAL, "it is a pipe, a socket or a device, not a regular file", str(path))
        return os.fdopen(descriptor, "rb")
    except BaseException:
        os.close(descriptor)
        raise


def is_utf16(file: BinaryIO) -> bool:
    """Whether a JSON file is written in UTF-16, by its first bytes; the file stands at its beginning afterwards."""
    file.seek(0)
    head = file.read(4)
    file.seek(0)
    return head.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)) or head[:2] in (b"{\0", b"\0{")


class TextWindow:
    """Part of a JSON file as text.

    Parameters
    ----------
    file : binary file
        Seekable; read from ``offset`` on.
    offset : int
        Byte to begin at.
    """

    def __init__(self, file: BinaryIO, offset: int = 0) -> None:
        self._file = file
        self._text: str = ""
        self.seek(offset)
        if offset == 0:
            self._more()
            if self._text.startswith("\ufeff"):
                self._text, self._base = self._text[1:], len(_BOM)

    def seek(self, offset: int) -> None:
        """Forget the text and go on at byte ``offset``, which must begin a character."""
        self._file.seek(offset)
        self._utf8 = codecs.getincrementaldecoder("utf-8")("surrogateescape")
        self._text, self._base, self._pos, self._mark = "", offset, 0, 0
        self._pinned: int | None = None
        self._ended = False

    def mark(self) -> None:
        """Declare everything up to here complete; the text before may be dropped."""
        self._mark = self._pos

    def offset(self) -> int:
        """Byte of the last mark."""
        if self._pinned is not None:
            return self._pinned
        return self._base + _byte_length(self._text[: self._mark])

    def peek(self) -> str:
        """Next character that is no white space, "" at the end of the file; the window stands before it."""
        while True:
            match = _SPACE.match(self._text, self._pos)
            self._pos = match.end() if match else self._pos
            if self._pos < len(self._text):
                return self._text[self._pos]
            if not self._more():
                return ""

    def open(self, bracket: str = "{") -> bool:
        """Step into an object (or, with ``[``, a list); False where there is none."""
        if self.peek() != bracket:
            return False
        self._pos += 1
        self.mark()
        return True

    def next_key(self, *, first: bool) -> str | None:
        """Key of the next member, with the window before its value, or None at the end of the object.

        Parameters
        ----------
        first : bool
            Whether no member came before.

        Raises
        ------
        Broken
            At anything else than JSON, the end of the file included.
        """
        char = self.peek()
        if char == "}":
            self._pos += 1
            self.mark()
            return None
        if not first:
            if char != ",":
                raise self._broken("a comma or a closing brace is missing")
            self._pos += 1
            char = self.peek()
        if char != '"':
            raise self._broken("a key in double quotes is missing")
        while True:
            try:
                key, self._pos = _DECODER.raw_decode(self._text, self._pos)
                break
            except JSONDecodeError as error:
                self._retry(error)
        if self.peek() != ":":
            raise self._broken("a colon is missing")
        self._pos += 1
        self.peek()
        return str(key)

    def next_item(self, *, first: bool) -> bool:
        """Whether a list has another item; the window then stands before it, else behind the list.

        Parameters
        ----------
        first : bool
            Whether no item came before.

        Raises
        ------
        Broken
            At anything else than JSON, the end of the file included.
        """
        char = self.peek()
        if char == "]":
            self._pos += 1
            self.mark()
            return False
        if not first:
            if char != ",":
                raise self._broken("a comma or a closing bracket is missing")
            self._pos += 1
            self.mark()
            self.peek()
        return True

    def value(self) -> Any:
        """The value here, as ``json.loads`` gives it.

        Raises
        ------
        Broken
            If it is no JSON.
        TooLarge
            If the json module refuses it; the window still stands before it.
        """
        while True:
            try:
                value, end = _DECODER.raw_decode(self._text, self._pos)
            except JSONDecodeError as error:
                self._retry(error)
                continue
            except RecursionError:
                raise TooLarge("it is nested too deep") from None
            except ValueError as error:
                raise TooLarge(str(error)) from None
            if isinstance(value, (int, float)) and len(self._text) - end < _NEAR_END and self._more():
                continue
            self._pos = end
            return value

    def skip_value(self) -> None:
        """Step over the value here without keeping it.

        Raises
        ------
        Broken
            At the end of the file.
        """
        if self.peek() not in ("{", "["):
            self._skip_scalar()
            return
        self._pinned = self.offset()
        depth = 0
        while True:
            match = _BRACKET_OR_STRING.search(self._text, self._pos)
            if match is None or (match.group(1) == ""):
                self._pos = match.start() if match else len(self._text)
                self.mark()
                if not self._more():
                    raise self._broken("the file ends inside a value")
                continue
            self._pos = match.end()
            char = match.group()
            if char in ("{", "["):
                depth += 1
            elif char in ("}", "]"):
                depth -= 1
                if depth == 0:
                    self._mark, self._pinned = self._pos, None
                    return

    def _skip_scalar(self) -> None:
        try:
            self.value()
        except TooLarge:
            while True:
                match = _NUMBER.match(self._text, self._pos)
                self._pos = match.end() if match else self._pos
                if self._pos < len(self._text) or not self._more():
                    return

    def at_end(self) -> bool:
        """Whether only white space is left."""
        return self.peek() == ""

    def _retry(self, error: JSONDecodeError) -> None:
        """Read more where the error may come from the end of the window, else raise Broken."""
        near = error.pos >= len(self._text) - _NEAR_END or error.msg.startswith("Unterminated")
        if not (near and self._more()):
            raise self._broken(f"the json reader says: {error.msg}") from None

    def _broken(self, text: str) -> Broken:
        return Broken(text, self.offset())

    def _more(self) -> bool:
        """Drop the text before the mark and read on; False at the end of the file."""
        if self._ended:
            return False
        if self._mark:
            self._base += _byte_length(self._text[: self._mark])
            self._text = self._text[self._mark :]
            self._pos -= self._mark
            self._mark = 0
        data = self._file.read(max(_WINDOW, len(self._text)))
        self._ended = not data
        self._text += self._utf8.decode(data, final=self._ended)
        return bool(data) or self._pos < len(self._text)


def _byte_length(text: str) -> int:
    return len(text) if text.isascii() else len(text.encode("utf-8", "surrogateescape"))
