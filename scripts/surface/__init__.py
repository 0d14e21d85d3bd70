"""A snapshot of everything outside that a release must not change by accident, for a maintainer who upgrades a fleet.

    python -m scripts.surface write DIR       write the snapshot, one file per theme
    python -m scripts.surface compare DIR     take another and print every difference; exit code 1 if there is any

Dashboards, alerts, configuration files, scripts around the command line and readers of logs and events hang on these
themes. The snapshot looks from the outside only: the command line in child processes, HTTP, sockets and files. No
module of `proxy` is imported, so that all may move. Human text (help, HELP, descriptions) is left out; values that
differ from run to run have placeholders.
"""
