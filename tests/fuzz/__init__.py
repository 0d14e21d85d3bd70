"""One file per invariant: any bytes whatever lead to a value or to a named refusal."""
