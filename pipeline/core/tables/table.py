"""The declaration of a table of the pipeline: its columns, their types and units, and its key."""

from dataclasses import dataclass
from typing import Literal

ColumnType = Literal["string", "int16", "int32", "int64", "double", "bool", "timestamp", "date", "map<int32,int64>"]


@dataclass(frozen=True, slots=True)
class Column:
    """A column; `unit` is empty for names, flags and plain counts."""

    name: str
    type: ColumnType
    unit: str
    meaning: str
    nullable: bool = False


@dataclass(frozen=True, slots=True)
class Table:
    """A table: what a row of it stands for, which columns name a row, and by which its files are laid out."""

    name: str
    meaning: str
    key: tuple[str, ...]
    columns: tuple[Column, ...]
    partition_by: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        known = {column.name for column in self.columns}
        if missing := [name for name in (*self.key, *self.partition_by) if name not in known]:
            raise TypeError(f"table {self.name}: {missing} are no columns of it")
