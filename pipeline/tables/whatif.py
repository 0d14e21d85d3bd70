"""Tables of the theme `whatif`."""
