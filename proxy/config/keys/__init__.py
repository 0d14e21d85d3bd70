"""Every key of proxy.conf, one declaration each, a file for each theme.

Rule: names, defaults and units are the Java proxy's wherever the meaning is the same. No key refers to another;
checks across keys are in `proxy.config.config`.
"""
