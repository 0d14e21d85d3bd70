"""What a role may look like: it goes into log lines, headers and the CONNECT of each broker connection.

Rule: text that could break any of these is no role, whoever vouches for it.
"""

from typing import Final

LONGEST_ROLE: Final = 1024


def is_role(value: object) -> bool:
    """Tell whether a value can be a role: printable text of 1 to 1,024 characters."""
    return isinstance(value, str) and 0 < len(value) <= LONGEST_ROLE and value.isprintable()
