"""Own what is explored state by state, at small sizes: rules whose orders are too many to think through."""
