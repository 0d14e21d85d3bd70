"""Tables of the theme `storms`."""
