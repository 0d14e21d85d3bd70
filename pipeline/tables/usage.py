"""Tables of the theme `usage`."""
