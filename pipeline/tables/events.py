"""Tables of the theme `events`."""
