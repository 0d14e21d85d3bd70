"""What is under deploy/, by the tools that read it: the image, Compose, systemd, manual pages, completion."""
