"""Everything that is wrong with data, said at once instead of one error for each try."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from fedpu.errors import DataError


class Problems:
    """Collects what is wrong."""

    def __init__(self) -> None:
        self.sentences: list[str] = []

    @contextmanager
    def collecting(self) -> Iterator[None]:
        """Note the error that is raised inside, if there is one, and go on."""
        try:
            yield
        except DataError as error:
            self.add(str(error))

    def add(self, sentence: str) -> None:
        """Note something that is wrong."""
        if sentence not in self.sentences:
            self.sentences.append(sentence)

    def tell(self) -> None:
        """Raise one error with a line for each thing that is wrong; do nothing where all is well."""
        if self.sentences:
            raise DataError("\n".join(self.sentences))
