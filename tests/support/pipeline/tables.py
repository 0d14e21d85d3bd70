"""What every table of the pipeline must be, whoever wrote it."""

from functools import reduce
from operator import or_

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from pipeline.core.schema import require_table
from pipeline.core.tables import Table


def assert_follows(frame: DataFrame, table: Table) -> None:
    """Check columns and types, that what must not be null is not, and that no two rows have the same key."""
    require_table(frame, table)
    required = [column.name for column in table.columns if not column.nullable]
    null = frame.where(reduce(or_, (F.col(name).isNull() for name in required))).select(*required).take(1)
    assert not null, f"table {table.name}: null in {null}"
    twice = frame.groupBy(*table.key).count().where("count > 1").take(1)
    assert not twice, f"table {table.name}: the key {table.key} is there twice: {twice}"
