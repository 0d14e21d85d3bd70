"""Pure transformations, DataFrame to DataFrame: the same for batch and for streams."""
